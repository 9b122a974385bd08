#include "analysis/runs/oversubscription.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "support/error.h"
#include "support/parse.h"

namespace gradsync::report {

namespace {

/// Longer lists were cut when they were recorded.
constexpr std::size_t kLongestList = 94;
constexpr std::int64_t kMostCores = 1 << 16;  ///< of a host; a file may say anything

using Cores = std::set<std::int64_t>;

void add_range(const std::string& range, Cores& cores) {
  const std::size_t dash = range.find('-');
  const std::int64_t first = parse_integer(range.substr(0, dash));
  const std::int64_t last =
      dash == std::string::npos ? first : parse_integer(range.substr(dash + 1));
  if (first < 0 || last >= kMostCores)
    throw Error(ExitCode::kBadData, fmt::format("cores {}", range));
  for (std::int64_t core = first; core <= last; ++core)
    cores.insert(core);
}

/// Of "0-3,8"; empty where that is not known.
Cores cores_of(const RankPlace& place) {
  Cores cores;
  if (place.affinity.empty() || place.affinity.size() > kLongestList) return cores;
  try {
    for (const std::string& range : split_list(place.affinity, ','))
      add_range(range, cores);
  } catch (const Error&) {
    return {};
  }
  return cores;
}

struct RankCores {
  std::size_t threads;
  Cores cores;
};

/// What the ranks that are bound to `cores` need of them.
Oversubscription use_of(const Cores& cores, const std::vector<RankCores>& ranks) {
  Oversubscription use{{}, 0, 0, cores.size()};
  for (const RankCores& rank : ranks)
    if (std::includes(cores.begin(), cores.end(), rank.cores.begin(), rank.cores.end())) {
      ++use.ranks;
      use.threads += rank.threads;
    }
  return use;
}

std::optional<Oversubscription> on_host(const std::vector<RankCores>& ranks) {
  Cores all;
  for (const RankCores& rank : ranks)
    all.insert(rank.cores.begin(), rank.cores.end());
  std::vector<const Cores*> tried = {&all};
  for (const RankCores& rank : ranks)
    tried.push_back(&rank.cores);
  for (const Cores* cores : tried)
    if (const Oversubscription use = use_of(*cores, ranks); use.threads > use.cores) return use;
  return std::nullopt;
}

}  // namespace

std::optional<Oversubscription> oversubscription(const std::vector<RankPlace>& topology) {
  std::map<std::string, std::vector<RankCores>> hosts;
  for (const RankPlace& place : topology) {
    const Cores cores = cores_of(place);
    if (cores.empty() || place.threads <= 0) return std::nullopt;
    hosts[place.host].push_back({static_cast<std::size_t>(place.threads), cores});
  }
  for (const auto& [host, ranks] : hosts)
    if (auto found = on_host(ranks)) {
      found->host = host;
      return found;
    }
  return std::nullopt;
}

std::string oversubscription_text(const Oversubscription& found) {
  return fmt::format("{} with {} had {} on host {}", count_text(found.ranks, "rank"),
                     count_text(found.threads, "thread"), count_text(found.cores, "core"),
                     found.host);
}

std::vector<OversubscribedRuns> oversubscribed_runs(const std::vector<Run>& runs) {
  std::vector<OversubscribedRuns> all;
  for (const Run& run : runs) {
    const auto found = oversubscription(run.reader->info().topology);
    if (!found) continue;
    const auto known = std::find_if(
        all.begin(), all.end(), [&](const OversubscribedRuns& one) { return one.found == *found; });
    (known == all.end() ? all.emplace_back(OversubscribedRuns{*found, {}}) : *known)
        .runs.push_back(&run);
  }
  return all;
}

}  // namespace gradsync::report
