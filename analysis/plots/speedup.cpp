#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "analysis/figures/comparisons.h"
#include "analysis/figures/run_group.h"
#include "analysis/plots/plots.h"
#include "analysis/plots/run_marks.h"
#include "options/modes.h"
#include "stats/estimate.h"

namespace gradsync::report {

namespace {

constexpr std::uint64_t kSeed = 1;
constexpr std::size_t kSpeedupMostLines = 12;  // of a panel; more cannot be told apart
constexpr const char* kIdealColor = "#999999";

struct TimedCell {
  const RunGroup* group;
  std::vector<double> times_s;
};

/// Cells that differ in nothing but the number of ranks, fewest ranks first.
using Family = std::vector<const TimedCell*>;

std::int64_t fixed_batch(const Run& run, Scaling scaling) {
  return scaling == Scaling::kStrong ? run.batch_global : run.batch_per_rank;
}

/// What the base of one rank has in common with its cells.
std::vector<std::string> setting_of(const Run& run, Scaling scaling) {
  std::vector<std::string> setting = option_values(run, options_of({OptionRole::kStep}));
  setting.push_back(run.model);
  setting.push_back(std::to_string(fixed_batch(run, scaling)));
  return setting;
}

std::vector<std::string> family_key(const Run& run, Scaling scaling) {
  std::vector<std::string> key = option_values(run, cell_options());
  key.push_back(run.model);
  key.push_back(run.mode);
  key.push_back(std::to_string(fixed_batch(run, scaling)));
  return key;
}

std::vector<TimedCell> cells_of(const std::vector<RunGroup>& groups) {
  std::vector<TimedCell> cells;
  for (const RunGroup& group : groups) {
    TimedCell cell{&group, steady_values(group, Phase::kIteration)};
    const Run& run = group.first();
    if (median_estimate(cell.times_s).count > 0 && run.batch_per_rank > 0 &&
        batch_schedule(run).empty())
      cells.push_back(cell);
  }
  return cells;
}

/// In the order of their first cells.
std::vector<Family> families_of(const std::vector<TimedCell>& cells, Scaling scaling) {
  std::vector<Family> families;
  std::vector<std::vector<std::string>> keys;
  for (const TimedCell& cell : cells) {
    if (cell.group->first().ranks < 2) continue;
    const auto key = family_key(cell.group->first(), scaling);
    const auto known = std::find(keys.begin(), keys.end(), key);
    const auto at = static_cast<std::size_t>(known - keys.begin());
    if (known == keys.end()) {
      keys.push_back(key);
      families.emplace_back();
    }
    families[at].push_back(&cell);
  }
  return families;
}

/// One rank without exchange, else one rank in the mode; nothing if there is neither.
const TimedCell* base_of(const std::vector<TimedCell>& cells, const Run& run, Scaling scaling) {
  const TimedCell* in_mode = nullptr;
  for (const TimedCell& cell : cells) {
    const Run& other = cell.group->first();
    if (other.ranks != 1 || setting_of(other, scaling) != setting_of(run, scaling)) continue;
    if (!mode_named(other.mode).exchanges) return &cell;
    if (other.mode == run.mode && !in_mode) in_mode = &cell;
  }
  return in_mode;
}

ChartPoint speedup_point_of(const TimedCell& base, const TimedCell& cell, Scaling scaling) {
  const auto ranks = static_cast<double>(cell.group->first().ranks);
  const double work = scaling == Scaling::kStrong ? 1 : ranks;
  const Estimate ratio = ratio_estimate(base.times_s, cell.times_s, kSeed);
  return {ranks, work * ratio.value, work * ratio.low, work * ratio.high};
}

/// What the panels say of themselves in the caption.
struct SpeedupCounts {
  std::size_t least = 0, most = 0;
  bool other_base = false;
  bool other_threads = false;  ///< base and cell used different numbers a rank
  std::size_t without_base = 0;

  void add(std::size_t count) {
    least = most == 0 ? count : std::min(least, count);
    most = std::max(most, count);
  }
};

std::int32_t threads_of(const Run& run) {
  return run.reader->info().topology.front().threads;
}

ChartSeries speedup_line_of(const Family& family, const TimedCell& base, Scaling scaling,
                            SpeedupCounts& counts) {
  const RunGroup& first = *family.front()->group;
  ChartSeries line{"", Mark::kLinePoints, mode_color(first.first().mode), 1, 2,
                   {}, group_keys(first)};
  for (const TimedCell* cell : family) {
    line.points.push_back(speedup_point_of(base, *cell, scaling));
    counts.add(cell->times_s.size());
    counts.other_threads |= threads_of(cell->group->first()) != threads_of(base.group->first());
  }
  counts.add(base.times_s.size());
  if (!mode_named(base.group->first().mode).exchanges)
    line.points.insert(line.points.begin(), {1, 1, kNotMeasured, kNotMeasured});
  else
    counts.other_base = true;
  return line;
}

ChartSeries ideal_line(std::int64_t most_ranks) {
  ChartSeries ideal{"ideal", Mark::kLine, kIdealColor, 2, 1.5, {}, {}};
  for (std::int64_t ranks = 1; ranks < most_ranks; ranks *= 2)
    ideal.points.push_back({static_cast<double>(ranks), static_cast<double>(ranks)});
  ideal.points.push_back({static_cast<double>(most_ranks), static_cast<double>(most_ranks)});
  return ideal;
}

void label_and_tell_apart(std::vector<ChartSeries>& lines,
                          const std::vector<const RunGroup*>& groups, Scaling scaling) {
  const auto labels =
      labels_of(groups, {Trait::kModel, Trait::kMode,
                         scaling == Scaling::kStrong ? Trait::kBatchGlobal : Trait::kBatchPerRank});
  std::map<std::string, int> of_color;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    lines[i].label = labels[i];
    lines[i].dash = of_color[lines[i].color]++ % 5 + 1;
  }
}

std::optional<ChartPanel> speedup_panel_of(const std::vector<TimedCell>& cells, Scaling scaling,
                                           SpeedupCounts& counts) {
  std::vector<ChartSeries> lines;
  std::vector<const RunGroup*> groups;
  std::set<std::int64_t> ranks = {1};
  std::size_t left_out = 0;
  for (const Family& family : families_of(cells, scaling)) {
    const TimedCell* base = base_of(cells, family.front()->group->first(), scaling);
    if (!base) {
      counts.without_base += family.size();
      continue;
    }
    if (lines.size() == kSpeedupMostLines) {
      ++left_out;
      continue;
    }
    lines.push_back(speedup_line_of(family, *base, scaling, counts));
    groups.push_back(family.front()->group);
    for (const TimedCell* cell : family)
      ranks.insert(cell->group->first().ranks);
  }
  if (lines.empty()) return std::nullopt;
  label_and_tell_apart(lines, groups, scaling);
  ChartPanel panel{scaling == Scaling::kStrong ? "strong scaling: global batch fixed, T(1)/T(n)"
                                               : "weak scaling: batch per rank fixed, n T(1)/T(n)",
                   left_out ? fmt::format("{} more lines not shown", left_out) : "",
                   {ideal_line(*ranks.rbegin())},
                   {},
                   kNotMeasured,
                   false};
  panel.series.insert(panel.series.end(), lines.begin(), lines.end());
  for (const std::int64_t count : ranks)
    panel.x_ticks.push_back({static_cast<double>(count), std::to_string(count)});
  return panel;
}

std::vector<std::string> speedup_caption(const SpeedupCounts& counts) {
  std::vector<std::string> sentences = {
      fmt::format("T: median iteration time of the slowest rank, n = {} steady iterations; "
                  "base: one rank without exchange{}.",
                  counts.least == counts.most ? std::to_string(counts.most)
                                              : fmt::format("{} to {}", counts.least, counts.most),
                  counts.other_base ? ", or one rank in the mode where there is none" : ""),
      fmt::format("Bars: 95 % bootstrap interval (seed {}). Both axes logarithmic.", kSeed)};
  if (counts.other_threads) sentences.push_back("Base and cells differ in threads per rank.");
  if (counts.without_base > 0)
    sentences.push_back(
        fmt::format("Not shown, for lack of a run of one rank with the same batch: {} cells.",
                    counts.without_base));
  return sentences;
}

}  // namespace

std::optional<Chart> make_speedup_plot(const RunSet& set) {
  const auto groups = group_runs(set);
  const auto cells = cells_of(groups);
  SpeedupCounts counts;
  Chart chart{
      "Speedup", {}, {"ranks", "ranks", "", 2, false}, {"speedup", "speedup", "", 2, false}, {}};
  for (const Scaling scaling : {Scaling::kStrong, Scaling::kWeak})
    if (auto panel = speedup_panel_of(cells, scaling, counts))
      chart.panels.push_back(std::move(*panel));
  if (chart.panels.empty()) return std::nullopt;
  chart.caption = speedup_caption(counts);
  return chart;
}

}  // namespace gradsync::report
