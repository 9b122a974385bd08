#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include "base/memory.h"
#include "base/parse.h"
#include "check/facts.h"
#include "machine/host.h"

namespace gradsync::check {

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

Finding judge_threads(const Ranks<BindingFacts>& ranks, int threads) {
  const std::string id = "binding.threads";
  const auto of_slurm =
      short_of_cores(ranks, [](const auto& facts) { return facts.asked_of_slurm; });
  if (!of_slurm.empty())
    return failed(id, "fewer cores than --cpus-per-task asked for: " + first_few(of_slurm),
                  "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK before srun, which does not take "
                  "--cpus-per-task over from sbatch");
  const auto of_threads = short_of_cores(ranks, [&](const auto&) { return threads; });
  if (!of_threads.empty())
    return failed(
        id, fmt::format("--threads {}: {}", threads, first_few(of_threads)),
        fmt::format("srun --cpus-per-task={0} …, or mpirun --map-by ppr:RANKS:node:PE={0} "
                    "…, or mpirun --bind-to none …",
                    threads));
  return passed(id, fmt::format("rank 0 on cores {}{}", ranks.front().facts.cores,
                                threads > 0 ? fmt::format(", {} threads", threads) : ""));
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
                          job.launcher().in_slurm_job};
  return judged(job, mine, [&](const Ranks<BindingFacts>& ranks) {
    return CheckResult{judge_binding(ranks, options)};
  });
}

}  // namespace gradsync::check
