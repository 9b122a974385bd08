#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "check/check.h"

namespace gradsync::check {

/// A file of MPI, NCCL or ours in shared memory that no process we can see uses.
struct Leftover {
  std::string name;
  std::int64_t bytes = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Leftover, name, bytes)

/// /dev/shm as the first rank of a host finds it; the other ranks state nothing.
struct SharedMemoryFacts {
  bool looked = false;
  int ranks = 0;  ///< on this host
  std::int64_t free_bytes = 0, size_bytes = 0;
  std::vector<Leftover> leftovers;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SharedMemoryFacts, looked, ranks, free_bytes, size_bytes,
                                   leftovers)

/// Files in `folder` with the name of a transport's segment, of this user (of all, for root), older
/// than a minute, and mapped by no process whose maps may be read. Removes nothing.
std::vector<Leftover> find_leftovers(const std::filesystem::path& folder);

std::vector<Finding> judge_shared_memory(const Ranks<SharedMemoryFacts>& ranks);

/// Whether shared memory has room, and what dead runs left in it.
CheckResult check_shared_memory(Job& job, const CheckOptions& options);

}  // namespace gradsync::check
