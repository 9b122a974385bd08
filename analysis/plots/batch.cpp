// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/figures/epoch_figures.h"
#include "analysis/plots/plots.h"
#include "analysis/plots/run_marks.h"
#include "base/parse.h"
#include "stats/estimate.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

/// Whole epochs of one cell: training time of the slowest rank, the first epoch apart.
struct EpochTimes {
  std::vector<double> first_s, later_s;
  bool has_later() const { return !later_s.empty(); }
  const std::vector<double>& shown() const { return has_later() ? later_s : first_s; }
};

EpochTimes times_of(const RunGroup& group) {
  EpochTimes times;
  for (const Run* run : group.repeats)
    for (const EpochFigures& epoch : epoch_figures(*run))
      if (epoch.whole && std::isfinite(epoch.training_s))
        (epoch.epoch == 0 ? times.first_s : times.later_s).push_back(epoch.training_s);
  return times;
}

ChartPoint point_at_batch(const Run& run, const std::vector<double>& times_s) {
  const Statistics figures = statistics(times_s);
  ChartPoint point{static_cast<double>(run.batch_per_rank), figures.median};
  if (figures.count < 2) return point;
  point.low = figures.minimum;
  point.high = figures.maximum;
  return point;
}

/// Cells of a line differ in nothing but the batch.
std::vector<std::string> all_but_batch(const Run& run) {
  std::vector<std::string> key = option_values(run, cell_options());
  key.push_back(run.mode);
  key.push_back(option_value(run, "threads"));
  key.push_back(devices_of(run));
  return key;
}

struct EpochCounts {
  CountRange epochs;
  std::size_t only_first = 0, without = 0;

  std::vector<std::string> caption() const;
};

std::vector<std::string> EpochCounts::caption() const {
  std::vector<std::string> sentences = {
      fmt::format("Median over n = {} whole epochs of the training time (waiting for data left "
                  "out) of the slowest rank; bars: smallest to largest.",
                  epochs.text()),
      only_first == 0
          ? "The first epoch, which warms up, is left out."
          : fmt::format("The first epoch is left out, except where it is the only one ({}).",
                        count_text(only_first, "cell"))};
  if (without > 0)
    sentences.push_back(
        fmt::format("Not shown, since no epoch was finished: {}.", count_text(without, "cell")));
  return sentences;
}

}  // namespace

std::optional<Chart> make_epoch_time_plot(const RunSet& set) {
  const auto groups = group_runs(set);
  std::map<PanelKey, CellLines> panels;
  EpochCounts counts;
  for (const RunGroup& group : groups) {
    const EpochTimes times = times_of(group);
    const Run& run = group.first();
    if (!batch_schedule(run).empty()) continue;
    if (times.shown().empty() || run.batch_per_rank == 0) {
      ++counts.without;
      continue;
    }
    counts.epochs.add(times.shown().size());
    counts.only_first += times.has_later() ? 0 : 1;
    panels[{run.model, run.ranks}].add(all_but_batch(run), group,
                                       point_at_batch(run, times.shown()));
  }
  if (panels.empty()) return std::nullopt;
  Chart chart{"Epoch time against batch size",
              counts.caption(),
              {"batch_per_rank", "batch size per rank", "", 2, false},
              {"training_time_s", "training time of an epoch (s)", "s", 0, true},
              {}};
  for (const auto& [key, lines] : panels)
    chart.panels.push_back({fmt::format("{}, {}", key.first, count_text(key.second, "rank")),
                            lines.left_out_text(), lines.series({Trait::kMode}),
                            number_ticks(lines.places())});
  return chart;
}

namespace {

constexpr std::size_t kMostRemedies = 8;  // of a panel; more cannot be told apart

// Okabe and Ito, "Color Universal Design" (2008).
constexpr std::array<const char*, kMostRemedies> kRemedyColors = {
    "#555555", "#d55e00", "#0072b2", "#009e73", "#e69f00", "#cc79a7", "#56b4e9", "#000000"};

struct AccuracyCounts {
  CountRange repeats;
  std::set<std::int64_t> epochs;
};

/// Nothing where the group has no test accuracy of a whole epoch.
std::optional<ChartPoint> accuracy_point(const RunGroup& group, AccuracyCounts& counts) {
  const AccuracyAt at = accuracy_at(group, last_common_epoch(group));
  const Estimate test = mean_estimate(at.test_percent);
  if (test.count == 0 || !at.whole) return std::nullopt;
  counts.repeats.add(test.count);
  counts.epochs.insert(at.epoch);
  return ChartPoint{static_cast<double>(largest_batch(group.first())), test.value, test.low,
                    test.high};
}

/// "ddp, 2 ranks", with further settings in which the groups differ.
std::string place_text(const RunGroup& group, const std::vector<std::string>& settings) {
  const std::string text = settings_text(group.first(), settings);
  return fmt::format("{}, {}{}{}", group.first().mode, count_text(group.first().ranks, "rank"),
                     text.empty() ? "" : ", ", text);
}

/// Lines of one remedy, mode, number of ranks and further settings: the key is the remedy and
/// place_text.
using RemedyLine = CellLines::Line;

/// Plain training first, then the lines over most batches, then those that end highest.
bool stands_before(const RemedyLine& one, const RemedyLine& other) {
  const auto rank = [](const RemedyLine& line) {
    return std::tuple(line.key[0] != "none", -static_cast<int>(line.points.size()),
                      -line.points.back().y);
  };
  return rank(one) < rank(other);
}

ChartPanel remedy_panel(const std::string& model, std::vector<RemedyLine> lines) {
  for (RemedyLine& line : lines)
    line.points = by_place(std::move(line.points));
  std::ranges::stable_sort(lines, stands_before);
  const std::size_t left_out = lines.size() - std::min(lines.size(), kMostRemedies);
  lines.erase(lines.end() - static_cast<std::ptrdiff_t>(left_out), lines.end());
  const std::string place = lines.front().key[1];
  const bool one_place =
      std::ranges::all_of(lines, [&](const RemedyLine& line) { return line.key[1] == place; });
  ChartPanel panel{one_place ? fmt::format("{}, {}", model, place) : model,
                   left_out > 0 ? fmt::format("{} more remedies: table large-batch", left_out) : "",
                   {}};
  std::set<double> batches;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const RemedyLine& line = lines[i];
    for (const ChartPoint& point : line.points)
      batches.insert(point.x);
    panel.series.push_back(
        {one_place ? line.key[0] : fmt::format("{} ({})", line.key[0], line.key[1]),
         Mark::kLinePoints, kRemedyColors[i], static_cast<int>(i % 2) + 1, 2, line.points,
         group_keys(*line.first)});
  }
  panel.x_ticks = number_ticks(batches);
  return panel;
}

}  // namespace

std::optional<Chart> make_large_batch_plot(const RunSet& set) {
  const auto groups = group_runs(set);
  std::map<std::string, CellLines> panels;  // by model
  auto settings = differing_options(pointers_to(groups));
  std::erase_if(settings, is_remedy_option);
  AccuracyCounts counts;
  for (const RunGroup& group : groups) {
    const Run& run = group.first();
    const auto point = run.batch_global > 0 ? accuracy_point(group, counts) : std::nullopt;
    if (!point) continue;
    const std::string remedy = remedy_text(group, smallest_batch(groups, group));
    auto& lines =
        panels.try_emplace(run.model, groups.size()).first->second;  // all: remedy_panel chooses
    lines.add({remedy, place_text(group, settings)}, group, *point);
  }
  Chart chart{
      "Accuracy against global batch",
      {fmt::format("Test accuracy at the end of epoch {}, mean of n = {} repeats; bars: 95 % "
                   "interval of Student's t.",
                   fmt::join(counts.epochs, ", "), counts.repeats.text()),
       "A line is a remedy, mode and number of ranks; of a batch schedule the largest batch is "
       "shown."},
      {"batch_global", "global batch size", "", 2, false},
      {"test_accuracy_percent", "test accuracy (%)", "%", 0, true},
      {}};
  for (const auto& [model, lines] : panels)
    if (lines.places().size() > 1) chart.panels.push_back(remedy_panel(model, lines.lines()));
  if (chart.panels.empty()) return std::nullopt;
  return chart;
}

}  // namespace gradsync::report
