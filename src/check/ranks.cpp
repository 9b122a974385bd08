#include <algorithm>
#include <set>

#include <fmt/ranges.h>

#include "base/parse.h"
#include "check/facts.h"

namespace gradsync::check {

namespace {

struct Host {
  std::string name;
  std::vector<int> ranks;
  std::set<std::string> cores;
};

std::vector<Host> hosts_of(const Ranks<RankFacts>& ranks) {
  std::vector<Host> hosts;
  for (const auto& one : ranks) {
    auto host = std::find_if(hosts.begin(), hosts.end(),
                             [&](const Host& known) { return known.name == one.host; });
    if (host == hosts.end()) host = hosts.insert(host, {one.host, {}, {}});
    host->ranks.push_back(one.rank);
    host->cores.insert(one.facts.cores);
  }
  return hosts;
}

Table host_table(const std::vector<Host>& hosts) {
  Table table{"hosts", "Hosts", {}, {}, {}};
  table.columns = {{"host", "host", true},
                   {"ranks", "ranks"},
                   {"numbers", "rank numbers", true},
                   {"cores", "cores of the ranks", true}};
  for (const Host& host : hosts)
    table.add({host.name, Cell::count(static_cast<double>(host.ranks.size())),
               fmt::format("{}", fmt::join(host.ranks, " ")),
               fmt::format("{}", fmt::join(host.cores, " | "))});
  return table;
}

/// The hosts that do not have `expected` ranks, with what they have.
std::vector<std::string> others(const std::vector<Host>& hosts, std::size_t expected) {
  std::vector<std::string> texts;
  for (const Host& host : hosts)
    if (host.ranks.size() != expected)
      texts.push_back(fmt::format("{} has {}", host.name, host.ranks.size()));
  return texts;
}

Finding judge_hosts(const std::vector<Host>& hosts, const CheckOptions& options) {
  const std::string id = "ranks.per-node";
  const auto asked = static_cast<std::size_t>(options.ranks_per_node);
  const std::string fix =
      "give --nodes and --ntasks-per-node both to sbatch or srun (the latter alone is only a "
      "maximum); mpirun --map-by ppr:N:node";
  if (asked > 0) {
    const auto wrong = others(hosts, asked);
    if (!wrong.empty())
      return failed(id, fmt::format("--ranks-per-node says {}: {}", asked, first_few(wrong)), fix);
  }
  const std::size_t first = hosts.front().ranks.size();
  const auto uneven = others(hosts, first);
  if (!uneven.empty())
    return warned(id,
                  fmt::format("hosts have different numbers of ranks: {} has {}, {}",
                              hosts.front().name, first, first_few(uneven)),
                  fix);
  const std::string of_each = count_text(first, "rank");
  return passed(id, hosts.size() == 1
                        ? "1 host with " + of_each
                        : fmt::format("{} hosts with {} each", hosts.size(), of_each));
}

}  // namespace

CheckResult judge_ranks(const Ranks<RankFacts>& ranks, const CheckOptions& options) {
  const auto hosts = hosts_of(ranks);
  return {{judge_hosts(hosts, options)}, {host_table(hosts)}};
}

CheckResult check_ranks(Job& job, const CheckOptions& options) {
  const RankFacts mine{job.place().local_rank, job.place().cores};
  return judged(job, mine, [&](const auto& ranks) { return judge_ranks(ranks, options); });
}

}  // namespace gradsync::check
