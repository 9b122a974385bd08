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

constexpr const char* kIdealColor = "#999999";

std::size_t timed_iterations(const RunGroup& group) {
  return median_estimate(steady_values(group, Phase::kIteration)).count;
}

/// What each group of several ranks is over in the plot: of its comparisons with one rank (without
/// exchange, else in the mode) the first of each kind of scaling.
std::vector<Comparison> with_one_rank(const std::vector<RunGroup>& groups) {
  std::vector<Comparison> chosen;
  for (const Comparison& one : comparisons(groups)) {
    if (one.group->first().ranks < 2 || one.base->first().ranks != 1) continue;
    const bool known = std::ranges::any_of(chosen, [&](const Comparison& other) {
      return other.group == one.group && other.scaling == one.scaling;
    });
    if (!known && timed_iterations(*one.group) > 0 && timed_iterations(*one.base) > 0)
      chosen.push_back(one);
  }
  return chosen;
}

bool exchanges(const RunGroup& group) {
  return mode_named(group.first().mode).exchanges;
}

/// Cells of a line differ in nothing but the number of ranks.
std::vector<std::string> all_but_ranks(const Comparison& of) {
  const Run& run = of.group->first();
  std::vector<std::string> key = option_values(run, cell_options());
  key.push_back(run.model);
  key.push_back(run.mode);
  key.push_back(
      std::to_string(of.scaling == Scaling::kStrong ? run.batch_global : run.batch_per_rank));
  key.push_back(option_value(run, "threads"));
  key.push_back(devices_of(run));
  return key;
}

ChartPoint speedup_point(const Comparison& of) {
  const auto ranks = static_cast<double>(of.group->first().ranks);
  const double work = of.scaling == Scaling::kStrong ? 1 : ranks;
  const Estimate ratio = time_ratio(*of.base, *of.group).estimate();
  return {ranks, work * ratio.value, work * ratio.low, work * ratio.high};
}

struct SpeedupCounts {
  CountRange iterations;
  bool other_base = false;
  std::set<std::string> unfair = {};            ///< what cells and bases differ in (unfairness)
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
  if (!unfair.empty())
    sentences.push_back(fmt::format("Base and cells differ: {}{}.", *unfair.begin(),
                                    unfair.size() > 1 ? ", and more (table speedup)" : ""));
  if (!without_base.empty())
    sentences.push_back(
        fmt::format("Not shown, for lack of a run of one rank with the same batch: {}.",
                    count_text(without_base.size(), "cell")));
  return sentences;
}

CellLines speedup_lines(const std::vector<Comparison>& all, Scaling scaling,
                        SpeedupCounts& counts) {
  CellLines lines;
  for (const Comparison& of : all) {
    if (of.scaling != scaling) continue;
    counts.without_base.erase(of.group);
    const auto key = all_but_ranks(of);
    if (!lines.add(key, *of.group, speedup_point(of))) continue;
    for (const RunGroup* group : {of.group, of.base})
      counts.iterations.add(timed_iterations(*group));
    if (const std::string unfair = unfairness(of); !unfair.empty()) counts.unfair.insert(unfair);
    counts.other_base |= exchanges(*of.base);
    // The base itself, once a line.
    if (!exchanges(*of.base) &&
        std::ranges::find(lines.lines(), key, &CellLines::Line::key)->points.size() == 1)
      lines.add(key, *of.group, {1, 1});
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

std::optional<ChartPanel> speedup_panel(const std::vector<Comparison>& all, Scaling scaling,
                                        SpeedupCounts& counts) {
  const bool strong = scaling == Scaling::kStrong;
  const CellLines lines = speedup_lines(all, scaling, counts);
  if (lines.lines().empty()) return std::nullopt;
  std::set<double> ranks = lines.places();
  ranks.insert(1);
  ChartPanel panel{strong ? "strong scaling: global batch fixed, T(1)/T(n)"
                          : "weak scaling: batch per rank fixed, n T(1)/T(n)",
                   lines.left_out_text(),
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
  const auto all = with_one_rank(groups);
  SpeedupCounts counts;
  for (const RunGroup& group : groups)
    if (const Run& run = group.first(); run.ranks > 1 && run.batch_per_rank > 0 &&
                                        batch_schedule(run).empty() && timed_iterations(group) > 0)
      counts.without_base.insert(&group);
  Chart chart{
      "Speedup", {}, {"ranks", "ranks", "", 2, false}, {"speedup", "speedup", "", 2, false}, {}};
  for (const Scaling scaling : {Scaling::kStrong, Scaling::kWeak})
    if (auto panel = speedup_panel(all, scaling, counts)) chart.panels.push_back(std::move(*panel));
  if (chart.panels.empty()) return std::nullopt;
  chart.caption = counts.caption();
  return chart;
}

}  // namespace gradsync::report
