#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <thread>

#include "base/memory.h"
#include "base/parse.h"
#include "check/facts.h"
#include "machine/host.h"
#include "stats/clock.h"

namespace gradsync::check {

namespace {

namespace fs = std::filesystem;

constexpr double kLeastShare = 0.9;
constexpr auto kWindow = std::chrono::seconds(1);
/// Before and after it ranks sleep as well: those that come late or leave early wait in MPI, which
/// takes a core.
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

/// By what other processes use of the cores of a rank and of those that share them with it. False
/// where the kernel does not state it of each core.
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

}  // namespace gradsync::check
