#pragma once

#include <filesystem>

namespace gradsync {

/// Writes CIFAR-10's six files, and batches.meta.txt if it is there, from the tar archive `archive`
/// (compressed or not) into the existing `folder`. The members are chosen by name and come through
/// a pipe, so neither their paths nor links in the archive have an effect; none may be larger than
/// an official file. Throws Error kBadData if a member is missing, too large or unreadable.
void extract_cifar10(const std::filesystem::path& archive, const std::filesystem::path& folder);

}  // namespace gradsync
