#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include "check/facts.h"
#include "support/parse.h"

namespace gradsync::check {

namespace {

/// What a host's ranks may use together.
struct HostCores {
  std::set<int> cores;
  int ranks = 0, online = 1;
  std::map<std::string, int> ranks_with;  ///< by their list of cores
};

std::map<std::string, HostCores> hosts_of(const Ranks<BindingFacts>& ranks) {
  std::map<std::string, HostCores> hosts;
  for (const auto& rank : ranks) {
    HostCores& host = hosts[rank.host];
    const auto cores = core_numbers(rank.facts.cores);
    host.cores.insert(cores.begin(), cores.end());
    host.online = rank.facts.cores_of_host;
    ++host.ranks;
    ++host.ranks_with[rank.facts.cores];
  }
  return hosts;
}

/// Ranks with fewer cores than `needed` gives for them.
template <typename Needed>
std::vector<std::string> short_of_cores(const Ranks<BindingFacts>& ranks, Needed&& needed) {
  std::vector<std::string> texts;
  for (const auto& rank : ranks) {
    const auto cores = static_cast<int>(core_numbers(rank.facts.cores).size());
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

/// Hosts whose ranks share cores; each rank computes with `threads`.
std::vector<std::string> crowded(const std::map<std::string, HostCores>& hosts, int threads) {
  std::vector<std::string> texts;
  for (const auto& [name, host] : hosts) {
    std::string found;
    for (const auto& [list, count] : host.ranks_with)
      if (static_cast<std::size_t>(count * threads) > core_numbers(list).size())
        found = fmt::format("{}: {} ranks with {} on cores {}", name, count,
                            count_text(threads, "thread"), list);
    if (found.empty() && static_cast<std::size_t>(host.ranks * threads) > host.cores.size())
      found = fmt::format("{}: {} ranks with {} on {} cores", name, host.ranks,
                          count_text(threads, "thread"), host.cores.size());
    if (!found.empty()) texts.push_back(found);
  }
  return texts;
}

/// Hosts whose ranks were left less than half of the cores that are there.
std::vector<std::string> narrow(const std::map<std::string, HostCores>& hosts) {
  std::vector<std::string> texts;
  for (const auto& [name, host] : hosts)
    if (host.cores.size() * 2 < static_cast<std::size_t>(host.online))
      texts.push_back(
          fmt::format("{}: {} of {} cores in use", name, host.cores.size(), host.online));
  return texts;
}

Finding judge_cores(const Ranks<BindingFacts>& ranks, int threads) {
  const std::string id = "binding.cores";
  const auto hosts = hosts_of(ranks);
  const auto shared = crowded(hosts, std::max(threads, 1));
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

std::vector<int> core_numbers(const std::string& list) {
  std::vector<int> numbers;
  for (const std::string& part : split_list(list, ',')) {
    if (part.empty()) continue;
    char* end = nullptr;
    const long first = std::strtol(part.c_str(), &end, 10);
    const long last = *end == '-' ? std::strtol(end + 1, nullptr, 10) : first;
    for (long core = first; core <= last; ++core)
      numbers.push_back(static_cast<int>(core));
  }
  return numbers;
}

std::vector<Finding> judge_binding(const Ranks<BindingFacts>& ranks, const CheckOptions& options) {
  return {judge_threads(ranks, options.threads), judge_cores(ranks, options.threads)};
}

CheckResult check_binding(Job& job, const CheckOptions& options) {
  const BindingFacts mine{job.place().cores, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)),
                          job.launcher().cores_per_rank, job.launcher().in_slurm_job};
  return judged(job, mine, [&](const Ranks<BindingFacts>& ranks) {
    return CheckResult{judge_binding(ranks, options)};
  });
}

}  // namespace gradsync::check
