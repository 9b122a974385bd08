// SPDX-License-Identifier: BSD-3-Clause
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include <fmt/ranges.h>

#include "base/memory.h"
#include "base/parse.h"
#include "check/check.h"
#include "machine/host.h"
#include "stats/clock.h"

namespace gradsync::check {

namespace {

const std::string kSeen = "gpus.seen", kShared = "gpus.shared", kKind = "gpus.kind",
                  kPeers = "gpus.peers";

Finding judge_lacks(const std::vector<DeviceFacts>& ranks, const CheckOptions& options) {
  std::vector<std::string> lacking;
  std::string fix;
  for (const DeviceFacts& rank : ranks) {
    const GpuLack lack = gpu_lack(rank, options.allow_shared_gpu);
    if (lack.what.empty()) continue;
    lacking.push_back(fmt::format("{}: {}", name_of(rank), lack.what));
    if (fix.empty()) fix = lack.fix;
  }
  if (lacking.empty()) return passed(kSeen, "every rank has a GPU");
  if (options.device == "auto" && is_without_gpus(ranks))
    return skipped(kSeen, lacking.front() + ", nor on any other rank");
  return failed(kSeen, first_few(lacking), fix);
}

/// The GPU that the rank drives; null if there is none for it.
const GpuDevice* gpu_of(const DeviceFacts& rank, bool may_share) {
  const int index = gpu_index(rank.local_rank, rank.gpus.size(), may_share);
  return index < 0 ? nullptr : &rank.gpus[static_cast<std::size_t>(index)];
}

/// Names of the ranks by host and device.
std::map<std::string, std::vector<std::string>> users_of_devices(
    const std::vector<DeviceFacts>& ranks, bool may_share) {
  std::map<std::string, std::vector<std::string>> users;
  for (const DeviceFacts& rank : ranks)
    if (const GpuDevice* gpu = gpu_of(rank, may_share))
      users[fmt::format("{} on {}", gpu->uuid, rank.host)].push_back(std::to_string(rank.rank));
  return users;
}

Finding judge_sharing(const std::vector<DeviceFacts>& ranks, bool may_share) {
  std::vector<std::string> shared;
  for (const auto& [device, users] : users_of_devices(ranks, may_share))
    if (users.size() > 1)
      shared.push_back(fmt::format("{}: ranks {}", device, fmt::join(users, ", ")));
  if (shared.empty()) return passed(kShared, "each rank has its own GPU");
  const std::string fix =
      "request --gpus-per-node=RANKS-PER-NODE and no --gpu-bind, or start fewer ranks a node";
  if (may_share) return warned(kShared, first_few(shared), fix);
  return failed(kShared, first_few(shared), fix + "; --allow-shared-gpu for tests");
}

Finding judge_kinds(const std::vector<DeviceFacts>& ranks, bool may_share) {
  std::map<std::string, std::vector<std::string>> ranks_of;
  for (const DeviceFacts& rank : ranks)
    if (const GpuDevice* gpu = gpu_of(rank, may_share))
      ranks_of[fmt::format("{}, driver for CUDA {}", gpu->name, rank.driver)].push_back(
          name_of(rank));
  if (ranks_of.size() == 1) return passed(kKind, ranks_of.begin()->first);
  std::vector<std::string> texts;
  for (const auto& [kind, users] : ranks_of)
    texts.push_back(fmt::format("{}: {}", kind, fmt::join(users, ", ")));
  return warned(
      kKind, first_few(texts),
      "request nodes of one type (--constraint); the slowest GPU determines the iteration time");
}

}  // namespace

std::vector<Finding> judge_gpus(const std::vector<DeviceFacts>& ranks,
                                const CheckOptions& options) {
  if (options.device == "cpu") return {skipped(kSeen, "--device cpu")};
  std::vector<Finding> findings = {judge_lacks(ranks, options)};
  const auto sees_one = [](const DeviceFacts& rank) { return !rank.gpus.empty(); };
  if (std::none_of(ranks.begin(), ranks.end(), sees_one)) return findings;
  findings.push_back(judge_sharing(ranks, options.allow_shared_gpu));
  findings.push_back(judge_kinds(ranks, options.allow_shared_gpu));
  const std::string hidden = unreachable_gpu(ranks);
  findings.push_back(hidden.empty() ? passed(kPeers, "no GPU of a host is hidden from its ranks")
                     : options.may_use_nccl() ? failed(kPeers, hidden, kUnreachableFix)
                                              : warned(kPeers, hidden, kUnreachableFix));
  return findings;
}

Finding judge_gpu_health(const Ranks<GpuHealth>& ranks) {
  const std::string id = "gpus.health";
  std::vector<std::string> ill;
  std::size_t errors_known = 0, clocks_known = 0;
  for (const auto& rank : ranks) {
    errors_known += rank.facts.uncorrected_errors >= 0 ? 1 : 0;
    clocks_known += rank.facts.throttle_reasons >= 0 ? 1 : 0;
    if (rank.facts.uncorrected_errors > 0)
      ill.push_back(
          fmt::format("{}: {}", rank.name(),
                      count_text(rank.facts.uncorrected_errors, "uncorrected memory error")));
    if (const std::string held = throttle_names(rank.facts.throttle_reasons); !held.empty())
      ill.push_back(fmt::format("{}: clocks held back by {}", rank.name(), held));
  }
  if (!ill.empty())
    return warned(
        id, first_few(ill),
        "nvidia-smi -q on that host; take another node, this one needs its administrator");
  if (errors_known + clocks_known == 0) return skipped(id, "NVML says nothing");
  const auto of_ranks = [&](std::size_t known) {
    return known == ranks.size()
               ? ""
               : fmt::format(" (n/a on {})", count_text(ranks.size() - known, "rank"));
  };
  return passed(id, fmt::format("no uncorrected memory error{}, no clock held back{}",
                                of_ranks(errors_known), of_ranks(clocks_known)));
}

namespace {

GpuHealth health_of(const Job& job, const DeviceFacts& mine, const CheckOptions& options) {
  const GpuDevice* gpu = gpu_of(mine, options.allow_shared_gpu);
  if (gpu == nullptr || options.device == "cpu") return {};
  const auto monitor = job.gpu_monitor(gpu->uuid);
  if (!monitor) return {};
  return {monitor->uncorrected_errors(), monitor->read().throttle_reasons};
}

}  // namespace

CheckResult check_gpus(Job& job, const CheckOptions& options) {
  const DeviceFacts mine = job.devices(options.allow_shared_gpu);
  const auto healths = gather_facts(job, health_of(job, mine, options));
  return judged(job, mine, [&](const Ranks<DeviceFacts>& ranks) {
    std::vector<DeviceFacts> all;
    for (const auto& rank : ranks)
      all.push_back(rank.facts);
    CheckResult result{judge_gpus(all, options)};
    if (result.findings.size() > 1) result.findings.push_back(judge_gpu_health(healths));
    return result;
  });
}

namespace {

struct BoundHost {
  std::vector<RankCores> ranks;
  int available = 1;
};

std::map<std::string, BoundHost> bound_hosts(const Ranks<BindingFacts>& ranks, int threads) {
  std::map<std::string, BoundHost> hosts;
  for (const auto& rank : ranks) {
    BoundHost& host = hosts[rank.host];
    host.ranks.push_back({cores_in(rank.facts.cores), static_cast<std::size_t>(threads)});
    host.available = rank.facts.cores_of_host;
  }
  return hosts;
}

/// Ranks with fewer cores than `needed` gives for them.
template <typename Needed>
std::vector<std::string> short_of_cores(const Ranks<BindingFacts>& ranks, Needed&& needed) {
  std::vector<std::string> texts;
  for (const auto& rank : ranks) {
    const auto cores = static_cast<int>(cores_in(rank.facts.cores).size());
    if (cores < needed(rank.facts))
      texts.push_back(fmt::format("{} may use {} ({}), needs {}", rank.name(),
                                  count_text(cores, "core"), rank.facts.cores, needed(rank.facts)));
  }
  return texts;
}

/// What gives each rank of Open MPI's mpirun so many cores, or of another one's.
std::string mpirun_with(const std::string& launcher, int cores) {
  if (launcher == "mpiexec") return fmt::format("mpirun -bind-to core:{} …", cores);
  return fmt::format("mpirun --map-by ppr:RANKS:node:PE={} …, or mpirun --bind-to none …", cores);
}

Finding judge_threads(const Ranks<BindingFacts>& ranks, int threads) {
  const std::string id = "binding.threads";
  const auto of_slurm =
      short_of_cores(ranks, [](const auto& facts) { return facts.asked_of_slurm; });
  if (!of_slurm.empty())
    return failed(
        id, "fewer cores than --cpus-per-task asked for: " + first_few(of_slurm),
        ranks.front().facts.launcher == "srun"
            ? "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK before srun, which does "
              "not take --cpus-per-task over from sbatch"
            : mpirun_with(ranks.front().facts.launcher, ranks.front().facts.asked_of_slurm));
  const auto of_threads = short_of_cores(ranks, [&](const auto&) { return threads; });
  if (!of_threads.empty())
    return failed(id, fmt::format("--threads {}: {}", threads, first_few(of_threads)),
                  fmt::format("srun --cpus-per-task={} …, or {}", threads,
                              mpirun_with(ranks.front().facts.launcher, threads)));
  return passed(id, fmt::format("rank 0 on cores {}{}", ranks.front().facts.cores,
                                threads > 0 ? ", " + count_text(threads, "thread") : ""));
}

/// Hosts whose ranks have fewer cores than threads.
std::vector<std::string> crowded(const std::map<std::string, BoundHost>& hosts) {
  std::vector<std::string> texts;
  for (const auto& [name, host] : hosts)
    if (const auto found = core_shortage(host.ranks))
      texts.push_back(fmt::format("{}: {} with {} on {}", name, count_text(found->ranks, "rank"),
                                  count_text(found->threads, "thread"),
                                  count_text(found->cores, "core")));
  return texts;
}

/// Hosts whose ranks were left less than half of the cores that are there.
std::vector<std::string> narrow(const std::map<std::string, BoundHost>& hosts) {
  std::vector<std::string> texts;
  for (const auto& [name, host] : hosts) {
    std::set<int> cores;
    for (const RankCores& rank : host.ranks)
      cores.insert(rank.cores.begin(), rank.cores.end());
    if (cores.size() * 2 < static_cast<std::size_t>(host.available))
      texts.push_back(fmt::format("{}: {} of {} cores in use", name, cores.size(), host.available));
  }
  return texts;
}

Finding judge_cores(const Ranks<BindingFacts>& ranks, int threads) {
  const std::string id = "binding.cores";
  const auto hosts = bound_hosts(ranks, std::max(threads, 1));
  const auto shared = crowded(hosts);
  if (!shared.empty())
    return warned(id, "oversubscribed: " + first_few(shared),
                  "fewer ranks a node or fewer --threads; times of such runs are not comparable");
  // Within a job of Slurm the other cores may be someone else's.
  const bool may_take_more = threads == 0 && !ranks.front().facts.in_slurm_job;
  const auto idle = may_take_more ? narrow(hosts) : std::vector<std::string>();
  if (!idle.empty())
    return warned(
        id, first_few(idle),
        "mpirun binds a rank to one core where there are two or fewer: --bind-to none, or "
        "--map-by ppr:RANKS:node:PE=CORES; --threads N says that N are meant");
  return passed(id, "no core is needed twice");
}

}  // namespace

int cores_of_host(const std::filesystem::path& root) {
  for (const auto& group : control_groups("cpuset", root))
    for (const char* file : {"cpuset.cpus.effective", "cpuset.effective_cpus"})
      if (const Cores cores = cores_in(line_of(group / file)); !cores.empty())
        return static_cast<int>(cores.size());
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

std::vector<Finding> judge_binding(const Ranks<BindingFacts>& ranks, const CheckOptions& options) {
  return {judge_threads(ranks, options.threads), judge_cores(ranks, options.threads)};
}

CheckResult check_binding(Job& job, const CheckOptions& options) {
  const BindingFacts mine{job.place().cores, cores_of_host(), job.launcher().cores_per_rank,
                          job.launcher().in_slurm_job, job.launcher().name};
  return judged(job, mine, [&](const Ranks<BindingFacts>& ranks) {
    return CheckResult{judge_binding(ranks, options)};
  });
}

namespace {

namespace fs = std::filesystem;

constexpr double kLeastShare = 0.9;
constexpr auto kWindow = std::chrono::seconds(1);
/// Time for which ranks sleep before and after the window as well: those that come late or leave
/// early wait in MPI, which takes a core.
constexpr auto kMargin = std::chrono::milliseconds(50);
constexpr double kTicks_per_s = 100;  ///< USER_HZ

/// Seconds that each core of /proc/stat did not idle. What the host of a virtual machine took of it
/// (steal) counts: nobody here gets that.
std::map<int, double> read_busy(const fs::path& stat) {
  std::map<int, double> busy_s;
  std::ifstream file(stat);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
    words >> name >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
    const Cores core = name.starts_with("cpu") ? cores_in(name.substr(3)) : Cores();
    if (words && core.size() == 1)
      busy_s[core[0]] = (user + nice + system + irq + softirq + steal) / kTicks_per_s;
  }
  return busy_s;
}

/// The number behind a word in a file that has lines "word number"; 0 without it.
double number_behind(const fs::path& path, const std::string& word) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(word + " ")) return std::strtod(line.c_str() + word.size(), nullptr);
  return 0;
}

/// The limit of a control group, in cores: cpu.max of v2, else the quota of v1; 0 without one.
double cpu_limit_of(const fs::path& group) {
  std::istringstream v2(line_of(group / "cpu.max"));
  double quota_us = 0, period_us = 0;
  if (!(v2 >> quota_us >> period_us)) {
    quota_us = number_in(group / "cpu.cfs_quota_us");
    period_us = number_in(group / "cpu.cfs_period_us");
  }
  return quota_us > 0 && period_us > 0 ? quota_us / period_us : 0;
}

std::vector<GroupLoad> read_groups(const fs::path& root) {
  std::vector<GroupLoad> groups;
  const auto folders = control_groups("cpu", root), accounts = control_groups("cpuacct", root);
  for (std::size_t i = 0; i < folders.size(); ++i) {
    struct stat folder {};
    const double limit_cores = cpu_limit_of(folders[i]);
    if (limit_cores <= 0 || ::stat(folders[i].c_str(), &folder) != 0) continue;
    // v1 may count in a controller of its own.
    const fs::path& account = i < accounts.size() ? accounts[i] : folders[i];
    groups.push_back({folder.st_ino, limit_cores,
                      number_behind(folders[i] / "cpu.stat", "usage_usec") * 1e-6 +
                          number_in(account / "cpuacct.usage") * 1e-9});
  }
  return groups;
}

/// The ranks of one host.
struct LoadedHost {
  std::vector<LoadFacts> ranks;
  std::vector<Cores> cores;         ///< of each
  std::vector<std::size_t> needed;  ///< cores that each needs for its threads
  const std::map<int, double>& busy_s() const { return ranks.front().busy_s; }
};

std::map<std::string, LoadedHost> loaded_hosts(const Ranks<LoadFacts>& ranks, int threads) {
  std::map<std::string, LoadedHost> hosts;
  for (const auto& rank : ranks) {
    hosts[rank.host].ranks.push_back(rank.facts);
    hosts[rank.host].cores.push_back(cores_in(rank.facts.cores));
  }
  for (auto& [name, host] : hosts)
    for (std::size_t rank = 0; rank < host.ranks.size(); ++rank)
      host.needed.push_back(threads > 0 ? static_cast<std::size_t>(threads)
                                        : fair_threads(host.cores, rank));
  return hosts;
}

/// What limits the ranks of a host most.
struct Least {
  double share = std::numeric_limits<double>::infinity();
  std::string why;

  void lower(double other, std::string because) {
    if (other >= share) return;
    share = other;
    why = std::move(because);
  }
};

/// Judges what other processes use of the cores of a rank and of those that share them with it.
/// False where the kernel does not state it of each core.
bool lower_by_cores(const LoadedHost& host, Least& least) {
  for (std::size_t rank = 0; rank < host.ranks.size(); ++rank) {
    if (host.cores[rank].empty()) return false;
    const double window_s = host.ranks.front().window_s;
    double others_s = 0;
    for (const int core : host.cores[rank]) {
      const auto busy_s = host.busy_s().find(core);
      if (busy_s == host.busy_s().end()) return false;
      others_s += std::clamp(busy_s->second, 0.0, window_s);
    }
    std::size_t needed = 0;
    for (const std::size_t sharer : sharers_of(host.cores, rank)) {
      needed += host.needed[sharer];
      others_s -= host.ranks[sharer].own_s;
    }
    const auto cores = static_cast<double>(host.cores[rank].size());
    const double others = std::max(0.0, others_s / window_s);
    least.lower((cores - others) / std::min(cores, static_cast<double>(needed)),
                fmt::format("other processes use {:.1f} of {}", others,
                            count_text(static_cast<std::int64_t>(cores), "core")));
  }
  return true;
}

void lower_by_limits(const LoadedHost& host, Least& least) {
  std::map<std::uint64_t, std::vector<std::size_t>> ranks_in;
  std::map<std::uint64_t, GroupLoad> groups;
  for (std::size_t rank = 0; rank < host.ranks.size(); ++rank)
    for (const GroupLoad& group : host.ranks[rank].groups) {
      ranks_in[group.id].push_back(rank);
      groups.try_emplace(group.id, group);
    }
  for (const auto& [id, group] : groups) {
    std::size_t needed = 0;
    double others_s = group.used_s;
    std::set<int> cores;
    for (const std::size_t rank : ranks_in[id]) {
      needed += host.needed[rank];
      cores.insert(host.cores[rank].begin(), host.cores[rank].end());
      others_s -= host.ranks[rank].own_s;
    }
    if (cores.empty()) continue;
    const double others = std::max(0.0, others_s / host.ranks.front().window_s);
    least.lower((group.limit_cores - others) / static_cast<double>(std::min(needed, cores.size())),
                fmt::format("the limit of their control group is {:.2g} cores, {:.1f} of them used "
                            "by other processes",
                            group.limit_cores, others));
  }
}

}  // namespace

LoadReading read_load(const fs::path& root) {
  return {read_busy(root / "proc/stat"), read_groups(root)};
}

LoadFacts load_between(const LoadReading& before, const LoadReading& after, double window_s) {
  LoadFacts facts;
  facts.window_s = window_s;
  for (const auto& [core, busy_s] : after.busy_s)
    if (const auto then = before.busy_s.find(core); then != before.busy_s.end())
      facts.busy_s[core] = busy_s - then->second;
  for (const GroupLoad& group : after.groups)
    for (const GroupLoad& then : before.groups)
      if (then.id == group.id)
        facts.groups.push_back({group.id, group.limit_cores, group.used_s - then.used_s});
  return facts;
}

Finding judge_load(const Ranks<LoadFacts>& ranks, const CheckOptions& options) {
  const std::string id = "load";
  std::vector<std::string> loaded, unknown;
  double lowest = 1;
  const auto hosts = loaded_hosts(ranks, options.threads);
  for (const auto& [name, host] : hosts) {
    Least least;
    const bool known = lower_by_cores(host, least);
    lower_by_limits(host, least);
    const double share = std::clamp(least.share, 0.0, 1.0);
    if (share < kLeastShare)
      loaded.push_back(fmt::format("{}: {:.0f} % of the cores that its ranks need are free: {}",
                                   name, 1e2 * share, least.why));
    else if (!known)
      unknown.push_back(name);
    lowest = std::min(lowest, share);
  }
  const std::string where =
      fmt::format("n/a on {}: /proc/stat does not state the load of its cores", first_few(unknown));
  if (!loaded.empty())
    return warned(id, first_few(loaded),
                  "end the other processes (top on that host), request nodes for this job alone "
                  "(sbatch --exclusive), or raise the limit (cpu.max, docker run --cpus); times of "
                  "such runs vary");
  if (unknown.size() == hosts.size()) return skipped(id, where);
  return passed(id, fmt::format("at least {:.0f} % of the cores that ranks need are free{}",
                                1e2 * lowest, unknown.empty() ? "" : "; " + where));
}

CheckResult check_load(Job& job, const CheckOptions& options) {
  job.meet();
  std::this_thread::sleep_for(kMargin);
  const LoadReading before = read_load();
  const ProcessUsage used_before = process_usage();
  const Stopwatch watch;
  std::this_thread::sleep_for(kWindow);
  const LoadReading after = read_load();
  LoadFacts mine = load_between(before, after, watch.elapsed_s());
  mine.own_s = (process_usage() - used_before).cpu_time_s;
  std::this_thread::sleep_for(kMargin);
  mine.cores = job.place().cores;
  if (job.place().local_rank != 0) mine.busy_s.clear();
  return judged(job, mine, [&](const Ranks<LoadFacts>& ranks) {
    return CheckResult{{judge_load(ranks, options)}};
  });
}

namespace {

/// Below it, registering gradient buckets with the adapter fails.
constexpr std::int64_t kLocked_bytes = std::int64_t{1} << 30;
constexpr std::int64_t kOpenFiles = 1024;

std::int64_t limit_of(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return kUnlimited;
  return limit.rlim_cur == RLIM_INFINITY ? kUnlimited : static_cast<std::int64_t>(limit.rlim_cur);
}

Finding judge_locked(const Ranks<LimitFacts>& ranks) {
  const std::string id = "limits.locked-memory";
  std::vector<std::string> low;
  bool infiniband = false;
  for (const auto& rank : ranks) {
    infiniband = infiniband || rank.facts.infiniband;
    const auto bytes = rank.facts.locked_bytes;
    if (rank.facts.infiniband && bytes != kUnlimited && bytes < kLocked_bytes)
      low.push_back(fmt::format("{}: {}", rank.name(), format_bytes(bytes)));
  }
  if (!infiniband) return skipped(id, "no InfiniBand adapter");
  if (low.empty()) return passed(id, "enough for an adapter's buffers");
  return warned(id, "the limit of locked memory is low: " + first_few(low),
                "LimitMEMLOCK=infinity in slurmd's unit, or ulimit -l unlimited before mpirun");
}

Finding judge_files(const Ranks<LimitFacts>& ranks) {
  const std::string id = "limits.open-files";
  std::vector<std::string> low;
  for (const auto& rank : ranks)
    if (rank.facts.open_files != kUnlimited && rank.facts.open_files < kOpenFiles)
      low.push_back(fmt::format("{}: {}", rank.name(), rank.facts.open_files));
  if (low.empty()) return passed(id, fmt::format("at least {} per rank", kOpenFiles));
  return warned(id, "the limit of open files is low: " + first_few(low),
                "ulimit -n 4096 before the launch");
}

Finding judge_omp(const Ranks<LimitFacts>& ranks, int threads) {
  const std::string id = "limits.omp-threads";
  const std::string& first = ranks.front().facts.omp_threads;
  std::vector<std::string> others;
  for (const auto& rank : ranks)
    if (rank.facts.omp_threads != first)
      others.push_back(fmt::format("{}: '{}'", rank.name(), rank.facts.omp_threads));
  if (!others.empty())
    return warned(id,
                  fmt::format("OMP_NUM_THREADS differs: {}: '{}', {}", ranks.front().name(), first,
                              first_few(others)),
                  "srun --export=ALL, or mpirun -x OMP_NUM_THREADS");
  if (threads > 0 && !first.empty() && first != std::to_string(threads))
    return warned(id, fmt::format("OMP_NUM_THREADS is {}, --threads {}", first, threads),
                  fmt::format("export OMP_NUM_THREADS={}; the trainer takes --threads", threads));
  return passed(id, first.empty() ? "OMP_NUM_THREADS is not set" : "OMP_NUM_THREADS is " + first);
}

}  // namespace

std::vector<Finding> judge_limits(const Ranks<LimitFacts>& ranks, const CheckOptions& options) {
  return {judge_locked(ranks), judge_files(ranks), judge_omp(ranks, options.threads)};
}

CheckResult check_limits(Job& job, const CheckOptions& options) {
  const char* omp = std::getenv("OMP_NUM_THREADS");
  const LimitFacts mine{limit_of(RLIMIT_MEMLOCK), limit_of(RLIMIT_NOFILE), has_infiniband(),
                        omp == nullptr ? "" : omp};
  return judged(job, mine, [&](const Ranks<LimitFacts>& ranks) {
    return CheckResult{judge_limits(ranks, options)};
  });
}

}  // namespace gradsync::check
