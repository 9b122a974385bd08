#include "analysis/metrics/run_group.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/metrics/columns.h"
#include "support/error.h"

namespace gradsync::report {

namespace {

/// What provenance says of one run only: its environment, the timings that chose its settings.
constexpr std::array<std::string_view, 2> kOfOneRun = {"env.", "probed"};

/// A value a rank, equal neighbours counted: "2 (4 ranks), 1 (1 rank)".
std::string run_lengths(const std::vector<std::string>& values) {
  std::string text;
  for (std::size_t from = 0, to = 0; from < values.size(); from = to) {
    while (to < values.size() && values[to] == values[from])
      ++to;
    text += fmt::format("{}{} ({} rank{})", text.empty() ? "" : ", ", values[from], to - from,
                        to - from == 1 ? "" : "s");
  }
  return text;
}

template <typename Value>
std::string of_ranks(const Run& run, Value&& value) {
  std::vector<std::string> values;
  for (const RankPlace& place : run.reader->info().topology)
    values.push_back(value(place));
  return run_lengths(values);
}

/// Which ranks share a host, without the names: "host 1 (2 ranks), host 2 (2 ranks)".
std::string placement(const Run& run) {
  std::map<std::string, std::size_t> hosts;
  return of_ranks(run, [&](const RankPlace& place) {
    return fmt::format("host {}", hosts.emplace(place.host, hosts.size() + 1).first->second);
  });
}

bool of_one_run(const std::string& name) {
  return std::any_of(kOfOneRun.begin(), kOfOneRun.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::string one_line(std::string text) {
  text.erase(text.find_last_not_of(" \n") + 1);
  return text;
}

/// All that must be equal, by name.
std::map<std::string, std::string> circumstances(const Run& run) {
  std::map<std::string, std::string> all = {
      {"ranks per host", placement(run)},
      {"device", of_ranks(run, [](const RankPlace& place) { return place.device; })},
      {"threads",
       of_ranks(run, [](const RankPlace& place) { return fmt::to_string(place.threads); })},
      {"precision", run.reader->option("precision")}};
  for (const NamedText& entry : run.reader->info().provenance)
    if (!of_one_run(entry.name)) all[entry.name] = one_line(entry.value);
  return all;
}

}  // namespace

std::string cell_option(const Run& run, std::string_view name) {
  const std::string recorded = run.reader->option(name);
  if (recorded.empty() && name == "init") return "equal";
  if (recorded.empty() && name == "sync-only") return "all";
  return recorded;
}

std::vector<std::string> cell_key(const Run& run) {
  std::vector<std::string> key = {run.model, run.mode, std::to_string(run.ranks),
                                  std::to_string(run.batch_per_rank),
                                  std::to_string(run.batch_global)};
  for (const std::string_view option : kCellOptions)
    key.push_back(cell_option(run, option));
  return key;
}

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

// A value that only one of the two has counts as empty in the other.
std::vector<RunDifference> differences(const Run& one, const Run& other) {
  auto a = circumstances(one), b = circumstances(other);
  for (const auto& entry : b)
    a.emplace(entry.first, "");
  std::vector<RunDifference> found;
  for (const auto& [name, value] : a)
    if (b[name] != value) found.push_back({name, &one, &other, value, b[name]});
  return found;
}

std::vector<RunDifference> differences(const RunSet& set) {
  std::vector<RunDifference> found;
  for (const RunGroup& group : group_runs(set))
    for (const Run* run : group.repeats) {
      const auto more = differences(group.first(), *run);
      found.insert(found.end(), more.begin(), more.end());
    }
  return found;
}

void require_mergeable(const RunSet& set) {
  const auto found = differences(set);
  if (found.empty()) return;
  const RunDifference& first = found.front();
  throw Error(
      ExitCode::kBadData,
      fmt::format("two repeats of one cell differ in {}: '{}' in {}, '{}' in {}{}", first.what,
                  first.value_of_one, first.one->path.string(), first.value_of_other,
                  first.other->path.string(),
                  found.size() == 1 ? "" : fmt::format(" ({} differences in all)", found.size())),
      "report them apart, set one against the other with `gradsync-report compare A B`, or "
      "merge them and have every table say so with --force-merge");
}

std::string merged_across(const RunSet& set) {
  std::set<std::string> names;
  for (const RunDifference& difference : differences(set))
    names.insert(difference.what);
  return names.empty() ? "" : fmt::format("MERGED ACROSS {}", fmt::join(names, ", "));
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
    const std::vector<double> slowest = slowest_rank(*run->reader, phase);
    for (std::size_t row = 0; row < slowest.size(); ++row)
      if (run->steady.keeps(row)) values.push_back(slowest[row]);
  }
  return values;
}

}  // namespace gradsync::report
