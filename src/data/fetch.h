#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "data/cifar10.h"

namespace gradsync {

inline constexpr const char* kOfficialAddress =
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz";

struct FetchResult {
  bool already_there = false;  ///< nothing was done: `to` holds a valid data set
  bool official_archive = false;
  std::string archive_sha256;  ///< empty if already there
  DataDigest digest;
};

/// Receives one line about each step, without a newline.
using FetchProgress = std::function<void(const std::string&)>;

/// Puts CIFAR-10's binary files into the folder `to`.
/// `from` is an address (http, https, file) or an archive on this machine, a tar file with
/// cifar-10-batches-bin/data_batch_1.bin and so on. An address is downloaded by curl to
/// `to`.download, and an interrupted download is continued. Only the known file names
/// are taken from the archive, each up to its right size, so no archive can write anything
/// elsewhere or fill the disk. The files are verified before the folder gets its name. An archive
/// other than the official one is accepted if its files pass.
///
/// A `to` that holds a valid data set is left alone; anything else there is an Error kCannotCreate.
/// Other errors: kNoInput (no such archive), kBadData (a wrong archive), kEnvironment (no curl or
/// tar), kInputOutput (a failed download).
FetchResult fetch(const std::filesystem::path& to, const std::string& from,
                  const FetchProgress& progress);

/// Writes CIFAR-10's six files, and batches.meta.txt if it is there, from the tar archive `archive`
/// (compressed or not) into the existing `folder`. The members are chosen by name and come through
/// a pipe, so neither their paths nor links in the archive have an effect; none may be larger than
/// an official file. Throws Error kBadData if a member is missing, too large or unreadable.
void extract_cifar10(const std::filesystem::path& archive, const std::filesystem::path& folder);

}  // namespace gradsync
