#include "analysis/runs/oversubscription.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "support/parse.h"

namespace gradsync::report {

namespace {

/// Longer lists were cut when they were recorded.
constexpr std::size_t kLongestList = 94;

}  // namespace

std::optional<Oversubscription> oversubscription(const std::vector<RankPlace>& topology) {
  std::map<std::string, std::vector<RankCores>> hosts;
  for (const RankPlace& place : topology) {
    const Cores cores = place.affinity.size() > kLongestList ? Cores() : cores_in(place.affinity);
    if (cores.empty() || place.threads <= 0) return std::nullopt;
    hosts[place.host].push_back({cores, static_cast<std::size_t>(place.threads)});
  }
  for (const auto& [host, ranks] : hosts)
    if (const auto found = core_shortage(ranks)) return Oversubscription{*found, host};
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
