#include "analysis/metrics/run_group.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

namespace gradsync {

namespace {

/// Options that make two runs different cells of a study, beside what Run itself holds.
constexpr std::array<std::string_view, 10> kCellOptions = {
    "granularity", "first-bucket", "bucket-cap", "wire-dtype", "accumulate",
    "precision",   "threads",      "layout",     "lr",         "remedy"};

std::vector<std::string> cell_key(const Run& run) {
  std::vector<std::string> key = {run.model, run.mode, std::to_string(run.ranks),
                                  std::to_string(run.batch_per_rank),
                                  std::to_string(run.batch_global)};
  for (const std::string_view option : kCellOptions)
    key.push_back(run.reader->option(option));
  std::vector<std::string> hosts;
  for (const RankPlace& place : run.reader->info().topology)
    hosts.push_back(place.host);
  std::sort(hosts.begin(), hosts.end());
  hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
  key.push_back(std::to_string(hosts.size()));
  return key;
}

}  // namespace

std::vector<RunGroup> group_runs(const RunSet& set) {
  std::vector<RunGroup> groups;
  std::vector<std::vector<std::string>> keys;
  for (const Run& run : set.runs) {
    const auto key = cell_key(run);
    const auto known = std::find(keys.begin(), keys.end(), key);
    if (known == keys.end()) {
      keys.push_back(key);
      groups.push_back({{&run}});
    } else {
      groups[static_cast<std::size_t>(known - keys.begin())].repeats.push_back(&run);
    }
  }
  return groups;
}

std::string sources_of(const RunGroup& group) {
  std::string text;
  for (const Run* run : group.repeats)
    text += (text.empty() ? "" : ", ") + run->path.string();
  return text;
}

std::vector<double> steady_values(const RunGroup& group, Phase phase) {
  std::vector<double> values;
  for (const Run* run : group.repeats) {
    const Matrix time = run->reader->time(phase);
    const auto& warmup = run->reader->index().warmup;
    for (std::size_t row = 0; row < time.rows; ++row) {
      if (row == 0 || warmup[row]) continue;
      double slowest = kNotMeasured;
      for (std::size_t rank = 0; rank < time.columns; ++rank)
        slowest = std::fmax(slowest, time.at(row, rank));
      values.push_back(slowest);
    }
  }
  return values;
}

}  // namespace gradsync
