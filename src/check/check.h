// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/cli/program_help.h"
#include "base/launcher.h"
#include "base/table.h"
#include "check/job.h"
#include "comm/watched_phases.h"
#include "machine/host.h"

namespace gradsync::check {

/// The settings of gradsync-check, all checked.
struct CheckOptions {
  std::string data = "data/cifar-10";  ///< folder of the data set
  std::string results = "results";     ///< folder that runs will be written to
  int ranks = 0;                       ///< the job must have so many; 0: any
  int ranks_per_node = 0;              ///< each host must have so many; 0: any
  int threads = 0;                     ///< compute threads a rank will use; 0: the trainer chooses
  std::string device = "auto";         ///< auto, cpu or cuda
  bool allow_shared_gpu = false;
  std::string transport = "auto";  ///< of the training to come; NCCL is tried for auto and nccl
  std::vector<std::string> skip;   ///< ids of checks that are left out
  bool verbose = false;            ///< print every row and the tables
  double timeout_s = 60;
  double least_link = 0;       ///< share of its nominal rate that a link must have; 0: a warning
  std::string sysfs = "/sys";  ///< where the kernel states rates
  std::string json, junit;     ///< files, or empty

  bool may_use_nccl() const { return transport == "auto" || transport == "nccl"; }
};

OptionTable check_option_table();
ProgramHelp check_help();
/// Throws Error kUsage with the option, its value, its source and what would be right.
CheckOptions check_options(const OptionValues& values);
/// --timeout limits the start as well.
WatchLimits watch_limits(const CheckOptions& options);

enum class Outcome { kPass, kWarn, kFail, kSkip };
inline constexpr std::array<std::string_view, 4> kOutcomeNames = {"pass", "warn", "fail", "skip"};

/// One row of the preflight.
struct Finding {
  std::string id;  ///< "binding.threads": the check, and which of its questions
  Outcome outcome = Outcome::kPass;
  std::string seen;  ///< values with their units, ranks, hosts; the reason of a skip
  std::string fix;   ///< one line: a command where there is one; empty for pass and skip
};

Finding passed(std::string id, std::string seen);
Finding warned(std::string id, std::string seen, std::string fix);
Finding failed(std::string id, std::string seen, std::string fix);
Finding skipped(std::string id, std::string reason);

/// What a check found, on rank 0; empty elsewhere.
struct CheckResult {
  std::vector<Finding> findings;
  std::vector<Table> tables = {};  ///< what was found where, for people
};

std::size_t count_of(const std::vector<Finding>& findings, Outcome outcome);

/// "3 pass, 1 warn, 0 fail, 2 skip".
std::string summary_text(const std::vector<Finding>& findings);

/// The first four with "; " between, "and 12 more" behind them.
std::string first_few(const std::vector<std::string>& parts);

/// One check: gathers facts of every rank and judges them on rank 0. Collective; it throws on no
/// rank alone, since the others would wait for it.
///
/// The judgment of each check is a function of its own from facts to findings, so that it can be
/// given any facts.
struct Check {
  std::string id;
  CheckResult (*run)(Job& job, const CheckOptions& options);
};

/// All checks, in the order of the report.
const std::vector<Check>& checks();

/// What one rank states.
template <typename Facts>
struct OnRank {
  int rank = 0;
  std::string host;
  Facts facts;

  /// "rank 2 (node07)".
  std::string name() const { return fmt::format("rank {} ({})", rank, host); }
};

template <typename Facts>
using Ranks = std::vector<OnRank<Facts>>;

/// The facts of all ranks on rank 0, in order of rank; empty elsewhere. `Facts` reads from and
/// writes to nlohmann's JSON. Collective.
template <typename Facts>
Ranks<Facts> gather_facts(Job& job, const Facts& mine) {
  const nlohmann::json stated = {{"host", job.place().host}, {"facts", mine}};
  Ranks<Facts> all;
  for (const std::string& text :
       job.gather(stated.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))) {
    const auto json = nlohmann::json::parse(text);
    all.push_back({static_cast<int>(all.size()), json.at("host").template get<std::string>(),
                   json.at("facts").template get<Facts>()});
  }
  return all;
}

/// Runs `judge(facts of all ranks)` where they are, on rank 0.
template <typename Facts, typename Judge>
CheckResult judged(Job& job, const Facts& mine, Judge&& judge) {
  const auto facts = gather_facts(job, mine);
  return facts.empty() ? CheckResult{} : judge(facts);
}

#define GRADSYNC_CHECK(id, name) CheckResult check_##id(Job& job, const CheckOptions& options);
#include "check/checks.def"
#undef GRADSYNC_CHECK

/// The row of a finding: result, name, what was seen. Ends with a newline.
std::string row_text(const Finding& finding);

/// The summary, then what warned and, last, what failed, each with its fix.
std::string closing_text(const std::vector<Finding>& findings, bool verbose);

/// {"format": "gradsync-check/1", "command_line", "created", "result": "pass"|"fail",
///  "summary": {"pass", "warn", "fail", "skip"}, "checks": [{"id", "result", "seen", "fix"}],
///  "tables": {NAME: [{COLUMN: value}]}}
std::string json_text(const CheckResult& result, const std::string& command_line);

/// One test per finding; a warning is a pass with the warning as output.
std::string junit_text(const std::vector<Finding>& findings);

}  // namespace gradsync::check

/// What each rank computes on. Facts of the checks and their judgments; the functions with the
/// prefix judge_ need neither MPI nor a cluster.
namespace gradsync::check {

// --- gpus: whether every rank has a GPU of its own, and all have the same kind.

std::vector<Finding> judge_gpus(const std::vector<DeviceFacts>& ranks, const CheckOptions& options);

/// What NVML says of the GPU that a rank drives; −1 where it says nothing.
struct GpuHealth {
  std::int64_t uncorrected_errors = -1, throttle_reasons = -1;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuHealth, uncorrected_errors, throttle_reasons)
Finding judge_gpu_health(const Ranks<GpuHealth>& ranks);

// --- binding: whether each rank has the cores its threads need, to itself.

/// Where one rank may compute.
struct BindingFacts {
  std::string cores;       ///< as the kernel lists them: "0-3,8"
  int cores_of_host = 1;   ///< that it could be bound to
  int asked_of_slurm = 0;  ///< --cpus-per-task; 0: not asked
  bool in_slurm_job = false;
  std::string launcher = {};  ///< Launcher::name
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BindingFacts, cores, cores_of_host, asked_of_slurm, in_slurm_job,
                                   launcher)

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
  int ranks = 0;                                  ///< on this host
  std::int64_t free_bytes = -1, size_bytes = -1;  ///< -1: not known
  std::vector<Leftover> leftovers;
  /// Whether processes of the host cannot be seen that may use the leftovers.
  bool in_container = false;
  std::uint64_t cma_namespace = 0;  ///< Job::cma_namespace
  bool fast_network = false;        ///< MPI may have another way within a host (UCX)
  std::string session = {};         ///< where MPI keeps the files of the job; empty: unknown
  std::string exposed = {};         ///< why others can change them; empty: they cannot
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SharedMemoryFacts, looked, ranks, free_bytes, size_bytes,
                                   leftovers, in_container, cma_namespace, fast_network, session,
                                   exposed)

/// Files in `folder` with the name of a transport's segment, of this user (of all, for root), older
/// than a minute, that no process has mapped which can be seen. Not those of a user some of whose
/// processes do not show what they have mapped. Removes nothing.
std::vector<Leftover> find_leftovers(const std::filesystem::path& folder);

/// Why users but this one and root can change what lies in `folder`; empty if they cannot.
std::string why_exposed(const std::filesystem::path& folder);

std::vector<Finding> judge_shared_memory(const Ranks<SharedMemoryFacts>& ranks);

// --- results: whether runs can be written to the results folder, and seen from all hosts.

/// What rank 0, which writes all files, could do in the results folder or, while that does not
/// exist, in the nearest folder above it.
struct FolderProbe {
  std::string folder;
  std::string write_error;       ///< of create, write, fsync, rename or HDF5; empty: all worked
  std::string lock_error;        ///< of flock or HDF5's own locking; empty: both worked
  std::string file_system;       ///< "nfs", "tmpfs", …
  std::int64_t free_bytes = -1;  ///< -1: not known
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

namespace gradsync {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NominalRate, name, rate_Bps)

}  // namespace gradsync

/// Clocks, and links between ranks. Facts of the checks and their judgments; the functions with the
/// prefix judge_ need neither MPI nor a cluster.
namespace gradsync::check {

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

/// The narrow slots of InfiniBand adapters, network interfaces and NVIDIA GPUs. A GPU lowers the
/// speed of its link while it is idle, so only its lanes count.
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

/// The NVLinks of the GPU that a rank drives; 0 links where there is no GPU.
struct NvlinkFacts {
  std::string gpu;      ///< its kind
  int up = 0, all = 0;  ///< −1: NVML does not say, as of a GPU that has none
  double rate_Bps = 0;  ///< of each that is up, one way, as the driver states it; 0: unknown
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NvlinkFacts, gpu, up, all, rate_Bps)
/// Against the nominal rate: all links of that kind of GPU at the highest rate that one of the job
/// has. Below `least_share` of it fails.
Finding judge_nvlinks(const Ranks<NvlinkFacts>& ranks, double least_share = 0);

Finding judge_nccl(const Ranks<NcclTrial>& ranks);

}  // namespace gradsync::check

/// The job and its hosts. Facts of the checks and their judgments; the functions with the prefix
/// judge_ need neither MPI nor a cluster.
namespace gradsync::check {

// --- launch: whether the job has the size that its launcher and the user state, was started by the
// MPI it is linked with, and has PMIx behind it under srun.

/// What the launcher of rank 0 says, beside what MPI says.
struct LaunchFacts {
  Launcher launcher;
  int ranks = 1;              ///< by MPI
  std::string mpi_library;    ///< "Open MPI v4.1.4"
  std::string mpi_path;       ///< a library of the MPI this program uses; empty: unknown
  std::string launcher_path;  ///< the same library in the launcher's process; empty: unknown
};

std::vector<Finding> judge_launch(const LaunchFacts& facts, const CheckOptions& options);

// --- ranks: whether all hosts have as many ranks as they should.

struct RankFacts {
  int local_rank = 0;
  std::string cores;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankFacts, local_rank, cores)

/// One row of findings and the table of hosts.
CheckResult judge_ranks(const Ranks<RankFacts>& ranks, const CheckOptions& options);

// --- nodes: whether the hosts are of one kind.

/// A host, as its first rank finds it; the other ranks state nothing.
struct NodeFacts {
  bool looked = false;
  std::string cpu, kernel;
  std::map<std::string, int> mtu_of;  ///< bytes, by network interface; without the loopback
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NodeFacts, looked, cpu, kernel, mtu_of)

std::vector<Finding> judge_nodes(const Ranks<NodeFacts>& ranks);

}  // namespace gradsync::check

/// The libraries of each rank. Facts of the checks and their judgments; the functions with the
/// prefix judge_ need neither MPI nor a cluster.
namespace gradsync::check {

/// A shared library in this process.
struct LoadedFile {
  std::string path;      ///< without links
  std::string identity;  ///< "build ID 4586e9…", or size and checksum of its first 4 MiB
};

/// The libraries whose file name begins with `stem` ("libmpi.so"); each file once. An empty stem
/// means the program itself.
std::vector<LoadedFile> loaded_files(const std::string& stem);

/// Path of the first of them, or empty.
std::string loaded_path(const std::string& stem);

/// Path of such a library in the nearest ancestor of this process that has one: the launcher's.
/// Empty if none has, the system does not report it, or they are in another mount namespace (this
/// process is in a container).
std::string path_in_ancestors(const std::string& stem);

// --- libraries: whether the libraries that are loaded are those the program was built with, and
// the same on all ranks.

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Library, name, compiled, loaded, path, identity)

struct LibraryFacts {
  std::vector<Library> libraries;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LibraryFacts, libraries)

/// Findings, and rank 0's libraries as a table.
CheckResult judge_libraries(const Ranks<LibraryFacts>& ranks);

}  // namespace gradsync::check
