#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "check/check.h"

namespace gradsync::check {

/// What rank 0, which writes all files, could do in the results folder or, while that does not
/// exist, in the nearest folder above it.
struct FolderProbe {
  std::string folder;
  std::string write_error;  ///< of create, write, fsync, rename or HDF5; empty: all worked
  std::string lock_error;   ///< of flock or HDF5's own locking; empty: both worked
  std::string file_system;  ///< "nfs", "tmpfs", …
  std::int64_t free_bytes = 0;
};

/// Whether the first rank of another host sees what rank 0 wrote.
struct SeenFacts {
  bool looked = false, seen = false;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SeenFacts, looked, seen)

/// Leaves nothing behind but the file `mark`, which the caller removes; empty if it could not be
/// written.
FolderProbe probe_folder(const std::string& results, std::string& mark);

std::vector<Finding> judge_results(const FolderProbe& probe, const Ranks<SeenFacts>& ranks);

/// Whether runs can be written to the results folder, and seen from all hosts.
CheckResult check_results(Job& job, const CheckOptions& options);

}  // namespace gradsync::check
