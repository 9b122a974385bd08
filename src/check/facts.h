#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "check/check.h"
#include "machine/host.h"

namespace gradsync {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NominalRate, name, rate_Bps)

}  // namespace gradsync

/// What each check finds out on the ranks, and how rank 0 judges it, in the order of checks.def.
/// The functions with the prefix judge_ need neither MPI nor a cluster.
namespace gradsync::check {

// --- launch: whether the job has the size that its launcher and the user state, was started by the
// MPI it is linked with, and has PMIx behind it under srun.

/// Of rank 0: what its launcher says, beside what MPI says.
struct LaunchFacts {
  Launcher launcher;
  int ranks = 1;              ///< by MPI
  std::string mpi_library;    ///< "Open MPI v4.1.4"
  std::string mpi_path;       ///< a library of the MPI this program uses; empty: unknown
  std::string launcher_path;  ///< the same library in the launcher's process; empty: unknown
};

/// The fix where srun connects no ranks.
inline constexpr const char* kSrunFix =
    "srun --mpi=pmix … (MPICH, Intel MPI: --mpi=pmi2, Cray MPICH: --mpi=cray_shasta); `srun "
    "--mpi=list` shows what Slurm has, else start with mpirun";

std::vector<Finding> judge_launch(const LaunchFacts& facts, const CheckOptions& options);

// --- ranks: whether all hosts have as many ranks as they should.

struct RankFacts {
  int local_rank = 0;
  std::string cores;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankFacts, local_rank, cores)

/// One row of findings and the table of hosts.
CheckResult judge_ranks(const Ranks<RankFacts>& ranks, const CheckOptions& options);

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

// --- nodes: whether the hosts are of one kind.

/// A host, as its first rank finds it; the other ranks state nothing.
struct NodeFacts {
  bool looked = false;
  std::string cpu, kernel;
  std::map<std::string, int> mtu_of;  ///< bytes, by network interface; without the loopback
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NodeFacts, looked, cpu, kernel, mtu_of)

std::vector<Finding> judge_nodes(const Ranks<NodeFacts>& ranks);

// --- libraries: whether the libraries that are loaded are those the program was built with, and
// the same on all ranks.

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Library, name, compiled, loaded, path, identity)

struct LibraryFacts {
  std::vector<Library> libraries;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LibraryFacts, libraries)

/// Findings, and rank 0's libraries as a table.
CheckResult judge_libraries(const Ranks<LibraryFacts>& ranks);

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

// --- clocks: whether the hosts have the same time of day, and how closely steady clocks can be
// aligned.

/// One rank's clocks, seconds.
struct ClockFacts {
  double wall_minus_steady_s = 0;  ///< what its clock of the day reads above its steady clock
  double offset_s = 0;             ///< add to its steady clock to read rank 0's
  double uncertainty_s = 0;        ///< of the offset
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ClockFacts, wall_minus_steady_s, offset_s, uncertainty_s)

/// How far this rank's clock of the day is ahead of rank 0's at the same instant:
/// (wall − steady) − (wall − steady of rank 0) − offset.
double ahead_s(const ClockFacts& facts, const ClockFacts& of_root);

std::vector<Finding> judge_clocks(const Ranks<ClockFacts>& ranks);

// --- links: whether data arrives as it was sent, and how fast: a sum over all ranks, and pairs of
// hosts.

/// What one rank measured of the sum over all ranks; shortest of a few calls.
struct SumFacts {
  double small_s = 0, large_s = 0;
  std::int64_t wrong = 0;  ///< values that are not the sum
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SumFacts, small_s, large_s, wrong)

/// A device whose PCIe link has fewer lanes or a lower speed than the device has.
struct NarrowSlot {
  std::string device;        ///< "mlx5_0", "GPU 0000:17:00.0"
  std::string now, largest;  ///< "x8 16.0 GT/s PCIe"
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NarrowSlot, device, now, largest)

/// Of InfiniBand adapters, network interfaces and NVIDIA GPUs. A GPU lowers the speed of its link
/// while it is idle, so only its lanes count.
std::vector<NarrowSlot> narrow_slots(const std::filesystem::path& sysfs);

/// Three significant digits: "12.3 GB/s", "2.60 MB/s".
std::string rate_text(double rate_Bps);

/// Two hosts, by a rank of each, exchanging data both ways.
struct LinkFacts {
  std::string hosts;         ///< "node01 and node02"
  double latency_s = 0;      ///< shortest exchange of one value
  double bandwidth_Bps = 0;  ///< of the shortest exchange of 1 MiB, each way
  std::int64_t wrong = 0;    ///< values that did not arrive as they were sent
  NominalRate nominal = {};  ///< of the slower host's fastest port; 0: unknown
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LinkFacts, hosts, latency_s, bandwidth_Bps, wrong, nominal)

inline constexpr std::int64_t kSmallSum_bytes = 4096, kLargeSum_bytes = std::int64_t{4} << 20;

/// The pairs of `hosts` hosts (numbers from 0) that are measured, one after the other: all of up to
/// twelve, else each with its neighbor in a ring.
std::vector<std::pair<int, int>> pairs_to_measure(int hosts);

Finding judge_sums(const Ranks<SumFacts>& ranks);
/// `links` of all pairs that were measured; `least_share` of their nominal rate is required, 0 for
/// a warning below half of it.
CheckResult judge_links(const std::vector<LinkFacts>& links, double least_share = 0);
/// What each host's first rank saw; `looked` is false on the others.
struct SlotFacts {
  bool looked = false;
  std::vector<NarrowSlot> narrow;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SlotFacts, looked, narrow)
Finding judge_slots(const Ranks<SlotFacts>& ranks);

/// The NVLinks of the GPU that a rank drives; 0 links where it has none, or there is no GPU.
struct NvlinkFacts {
  std::string gpu;  ///< its kind
  int up = 0, all = 0;
  double rate_Bps = 0;  ///< of each that is up, one way, as the driver states it; 0: unknown
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NvlinkFacts, gpu, up, all, rate_Bps)
/// Against the nominal rate: all links of that kind of GPU at the highest rate that one of the job
/// has. Below `least_share` of it fails.
Finding judge_nvlinks(const Ranks<NvlinkFacts>& ranks, double least_share = 0);

#define GRADSYNC_CHECK(id, name) CheckResult check_##id(Job& job, const CheckOptions& options);
#include "check/checks.def"
#undef GRADSYNC_CHECK

}  // namespace gradsync::check
