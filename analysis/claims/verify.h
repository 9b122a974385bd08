#pragma once

#include <filesystem>
#include <string>

namespace gradsync::report {

/// Reads the run files that a file of claims names, makes its tables again and compares. Returns
/// one line for people: how many numbers of how many files hold. Throws as read_claims,
/// require_unchanged and require_held.
std::string verify_claims(const std::filesystem::path& path);

}  // namespace gradsync::report
