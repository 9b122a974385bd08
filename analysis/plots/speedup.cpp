// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "analysis/figures/comparisons.h"
#include "analysis/plots/plots.h"
#include "analysis/plots/run_marks.h"
#include "base/parse.h"
#include "options/modes.h"
#include "stats/estimate.h"

namespace gradsync::report {

namespace {

constexpr std::size_t kMostLines = 12;  // of a panel; more cannot be told apart
constexpr const char* kIdealColor = "#999999";

struct TimedCell {
  const RunGroup* group;
  std::vector<double> times_s;

  const Run& run() const { return group->first(); }
  bool exchanges() const { return mode_named(run().mode).exchanges; }
};

std::vector<TimedCell> timed_cells(const std::vector<RunGroup>& groups) {
  std::vector<TimedCell> cells;
  for (const RunGroup& group : groups) {
    TimedCell cell{&group, steady_values(group, Phase::kIteration)};
    if (median_estimate(cell.times_s).count > 0 && cell.run().batch_per_rank > 0 &&
        batch_schedule(cell.run()).empty())
      cells.push_back(std::move(cell));
  }
  return cells;
}

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

/// Cells of a line differ in nothing but the number of ranks.
std::vector<std::string> all_but_ranks(const Run& run, Scaling scaling) {
  std::vector<std::string> key = option_values(run, cell_options());
  key.push_back(run.model);
  key.push_back(run.mode);
  key.push_back(std::to_string(fixed_batch(run, scaling)));
  return key;
}

/// One rank without exchange, else one rank in the mode; nothing if there is neither.
const TimedCell* base_of(const std::vector<TimedCell>& cells, const Run& run, Scaling scaling) {
  const TimedCell* in_mode = nullptr;
  for (const TimedCell& cell : cells) {
    if (cell.run().ranks != 1 || setting_of(cell.run(), scaling) != setting_of(run, scaling))
      continue;
    if (!cell.exchanges()) return &cell;
    if (cell.run().mode == run.mode && !in_mode) in_mode = &cell;
  }
  return in_mode;
}

ChartPoint speedup_point(const TimedCell& base, const TimedCell& cell, Scaling scaling) {
  const auto ranks = static_cast<double>(cell.run().ranks);
  const double work = scaling == Scaling::kStrong ? 1 : ranks;
  const Estimate ratio = time_ratio(*base.group, *cell.group).estimate();
  return {ranks, work * ratio.value, work * ratio.low, work * ratio.high};
}

std::int32_t threads_of(const TimedCell& cell) {
  return cell.run().reader->info().topology.front().threads;
}

struct SpeedupCounts {
  CountRange iterations;
  bool other_base = false;
  bool other_threads = false;                   ///< base and cell used different numbers a rank
  std::set<const RunGroup*> without_base = {};  ///< neither for strong nor for weak scaling

  std::vector<std::string> caption() const;
};

std::vector<std::string> SpeedupCounts::caption() const {
  std::vector<std::string> sentences = {
      fmt::format("T: median iteration time of the slowest rank, n = {} steady iterations; "
                  "base: one rank without exchange{}.",
                  iterations.text(),
                  other_base ? ", or one rank in the mode where there is none" : ""),
      "Bars: 95 % interval over the starts, where cell and base have 3 or more each. Both axes "
      "logarithmic."};
  if (other_threads) sentences.push_back("Base and cells differ in threads per rank.");
  if (!without_base.empty())
    sentences.push_back(
        fmt::format("Not shown, for lack of a run of one rank with the same batch: {}.",
                    count_text(without_base.size(), "cell")));
  return sentences;
}

CellLines speedup_lines(const std::vector<TimedCell>& cells, Scaling scaling,
                        SpeedupCounts& counts) {
  CellLines lines(kMostLines);
  for (const TimedCell& cell : cells) {
    if (cell.run().ranks < 2) continue;
    const TimedCell* base = base_of(cells, cell.run(), scaling);
    if (!base) continue;
    counts.without_base.erase(cell.group);
    const auto key = all_but_ranks(cell.run(), scaling);
    if (!lines.add(key, *cell.group, speedup_point(*base, cell, scaling))) continue;
    counts.iterations.add(cell.times_s.size());
    counts.iterations.add(base->times_s.size());
    counts.other_threads |= threads_of(cell) != threads_of(*base);
    counts.other_base |= base->exchanges();
    // The base itself, once a line.
    if (!base->exchanges() &&
        std::ranges::find(lines.lines(), key, &CellLines::Line::key)->points.size() == 1)
      lines.add(key, *cell.group, {1, 1});
  }
  return lines;
}

ChartSeries ideal_line(double most_ranks) {
  ChartSeries ideal{"ideal", Mark::kLine, kIdealColor, 2, 1.5, {}, {}};
  for (double ranks = 1; ranks < most_ranks; ranks *= 2)
    ideal.points.push_back({ranks, ranks});
  ideal.points.push_back({most_ranks, most_ranks});
  return ideal;
}

std::optional<ChartPanel> speedup_panel(const std::vector<TimedCell>& cells, Scaling scaling,
                                        SpeedupCounts& counts) {
  const bool strong = scaling == Scaling::kStrong;
  const CellLines lines = speedup_lines(cells, scaling, counts);
  if (lines.lines().empty()) return std::nullopt;
  std::set<double> ranks = lines.places();
  ranks.insert(1);
  ChartPanel panel{
      strong ? "strong scaling: global batch fixed, T(1)/T(n)"
             : "weak scaling: batch per rank fixed, n T(1)/T(n)",
      lines.left_out() > 0 ? count_text(lines.left_out(), "more line") + " not shown" : "",
      {ideal_line(*ranks.rbegin())},
      number_ticks(ranks)};
  for (ChartSeries& line : lines.series(
           {Trait::kModel, Trait::kMode, strong ? Trait::kBatchGlobal : Trait::kBatchPerRank}))
    panel.series.push_back(std::move(line));
  return panel;
}

}  // namespace

std::optional<Chart> make_speedup_plot(const RunSet& set) {
  const auto groups = group_runs(set);
  const auto cells = timed_cells(groups);
  SpeedupCounts counts;
  for (const TimedCell& cell : cells)
    if (cell.run().ranks > 1) counts.without_base.insert(cell.group);
  Chart chart{
      "Speedup", {}, {"ranks", "ranks", "", 2, false}, {"speedup", "speedup", "", 2, false}, {}};
  for (const Scaling scaling : {Scaling::kStrong, Scaling::kWeak})
    if (auto panel = speedup_panel(cells, scaling, counts))
      chart.panels.push_back(std::move(*panel));
  if (chart.panels.empty()) return std::nullopt;
  chart.caption = counts.caption();
  return chart;
}

}  // namespace gradsync::report
