#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "check/check.h"

/// Shared memory and file systems. Facts of the checks and their judgments; the functions with the
/// prefix judge_ need neither MPI nor a cluster.
namespace gradsync::check {

// --- shared memory: whether shared memory has room, what dead runs left in it, and whether MPI can
// copy messages from process to process.

/// A file of MPI, NCCL or ours in shared memory that no process of this process-id namespace uses.
struct Leftover {
  std::string name;
  std::int64_t bytes = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Leftover, name, bytes)

/// /dev/shm as the first rank of a host finds it; the other ranks state `cma_namespace` and
/// `fast_network` alone.
struct SharedMemoryFacts {
  bool looked = false;
  int ranks = 0;  ///< on this host
  std::int64_t free_bytes = 0, size_bytes = 0;
  std::vector<Leftover> leftovers;
  /// Whether processes of the host cannot be seen that may use the leftovers.
  bool in_container = false;
  std::uint64_t cma_namespace = 0;  ///< Job::cma_namespace
  bool fast_network = false;        ///< MPI may have another way within a host (UCX)
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SharedMemoryFacts, looked, ranks, free_bytes, size_bytes,
                                   leftovers, in_container, cma_namespace, fast_network)

/// Files in `folder` with the name of a transport's segment, of this user (of all, for root), older
/// than a minute, that no process has mapped which can be seen. Not those of a user some of whose
/// processes do not show what they have mapped. Removes nothing.
std::vector<Leftover> find_leftovers(const std::filesystem::path& folder);

std::vector<Finding> judge_shared_memory(const Ranks<SharedMemoryFacts>& ranks);

// --- results: whether runs can be written to the results folder, and seen from all hosts.

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

// --- data: whether every host has the data set, whole, and all have the same. Reads every byte
// once a host.

/// The data set as the first rank of a host reads it; the other ranks state nothing.
struct DataFacts {
  bool looked = false;
  std::string error, fix;  ///< why it cannot be used, and what to do; empty if it can
  std::string name;        ///< "CIFAR-10 (official)"
  std::string digest;      ///< SHA-256 of all files
  long images = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DataFacts, looked, error, fix, name, digest, images)

std::vector<Finding> judge_data(const Ranks<DataFacts>& ranks, const CheckOptions& options);

}  // namespace gradsync::check
