#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "check/check.h"

/// What each rank computes on. Facts of the checks and their judgments; the functions with the
/// prefix judge_ need neither MPI nor a cluster.
namespace gradsync::check {

// --- gpus: whether every rank has a GPU of its own, and all have the same kind.

/// The GPUs of one rank.
struct GpuFacts {
  int local_rank = 0;
  std::string driver;              ///< highest CUDA version it supports, or "none"
  std::vector<std::string> names;  ///< of the visible ones
  std::vector<std::string> uuids;  ///< of the same
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuFacts, local_rank, driver, names, uuids)

/// The device a rank drives (gpu_index); -1 if there is none for it.
int chosen_gpu(const GpuFacts& facts, bool may_share = false);

std::vector<Finding> judge_gpus(const Ranks<GpuFacts>& ranks, const CheckOptions& options);

// --- binding: whether each rank has the cores its threads need, to itself.

/// Where one rank may compute.
struct BindingFacts {
  std::string cores;       ///< as the kernel lists them: "0-3,8"
  int cores_of_host = 1;   ///< that it could be bound to
  int asked_of_slurm = 0;  ///< --cpus-per-task; 0: not asked
  bool in_slurm_job = false;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BindingFacts, cores, cores_of_host, asked_of_slurm, in_slurm_job)

/// How many cores the control group (cpuset) of this process has; without one, those online. `root`
/// holds proc and sys.
int cores_of_host(const std::filesystem::path& root = "/");

std::vector<Finding> judge_binding(const Ranks<BindingFacts>& ranks, const CheckOptions& options);

// --- load: what share of the cores that its threads need is free for the job, beside other
// processes and within the limits of its control groups.

/// A control group around a rank that limits CPU time.
struct GroupLoad {
  std::uint64_t id = 0;    ///< equal for ranks of one host that are in it
  double limit_cores = 0;  ///< CPU time per time
  double used_s = 0;       ///< CPU time of all its processes
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GroupLoad, id, limit_cores, used_s)

/// CPU time that was used so far.
struct LoadReading {
  std::map<int, double> busy_s;  ///< by core, of all processes of the host
  std::vector<GroupLoad> groups;
};
/// `root` holds proc and sys.
LoadReading read_load(const std::filesystem::path& root = "/");

/// CPU time that was used while all ranks slept.
struct LoadFacts {
  std::string cores;  ///< that this rank may use
  double window_s = 0;
  double own_s = 0;              ///< of this rank itself
  std::map<int, double> busy_s;  ///< by core; of the first rank of a host
  std::vector<GroupLoad> groups;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LoadFacts, cores, window_s, own_s, busy_s, groups)

/// All but the rank's own part. What only one of the readings has is left out.
LoadFacts load_between(const LoadReading& before, const LoadReading& after, double window_s);

Finding judge_load(const Ranks<LoadFacts>& ranks, const CheckOptions& options);

// --- limits: whether limits and variables that silently slow or break a run are as they should be.

inline constexpr std::int64_t kUnlimited = -1;

/// What the system and the environment allow one rank.
struct LimitFacts {
  std::int64_t locked_bytes = kUnlimited;  ///< ulimit -l
  std::int64_t open_files = kUnlimited;    ///< ulimit -n
  bool infiniband = false;                 ///< the host has such a device
  std::string omp_threads;                 ///< OMP_NUM_THREADS, or empty
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LimitFacts, locked_bytes, open_files, infiniband, omp_threads)

std::vector<Finding> judge_limits(const Ranks<LimitFacts>& ranks, const CheckOptions& options);

}  // namespace gradsync::check
