// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include <fmt/format.h>

#include "analysis/figures/experiments.h"
#include "analysis/figures/run_group.h"
#include "analysis/plots/plots.h"
#include "analysis/plots/run_marks.h"
#include "analysis/read/columns.h"
#include "base/parse.h"
#include "stats/statistics.h"

/// Plots against the iteration: faint points are the values, lines their moving median, a panel for
/// each number of ranks.
namespace gradsync::report {

namespace {

constexpr std::size_t kMostPoints = 2000;  // of a line; of a longer one every nth is kept
constexpr double kSteadyQuantile = 0.98;
constexpr double kHeadroom = 1.15;    // above the quantile, if the axis is cut there
constexpr double kWorthEnding = 1.5;  // times that end: below it all points are shown

/// A value of a run for each iteration.
using ValuesOf = std::function<std::vector<double>(RunReader& run)>;

struct RunLine {
  const Run* run = nullptr;
  std::string label;
  int dash = 1;
  std::vector<ChartPoint> values;    ///< at iterations counted from 1
  std::vector<ChartPoint> smoothed;  ///< moving median
  double steady_top = 0;             ///< 98 % quantile of the values after warm-up
};

template <typename Value>
bool differ(const std::vector<RunLine>& lines, Value CellSetting::*field) {
  return std::ranges::any_of(
      lines, [&](const RunLine& line) { return line.run->*field != lines.front().run->*field; });
}

std::vector<ChartPoint> thinned(const IterationIndex& index, const std::vector<double>& values) {
  const std::size_t step = (values.size() + kMostPoints - 1) / kMostPoints;
  std::vector<ChartPoint> points;
  for (std::size_t i = 0; i < values.size(); i += step)
    points.push_back({static_cast<double>(index.iteration[i] + 1), values[i]});
  return points;
}

// About 20 windows fit into a run, so that the line follows the trend and not the noise. Five at
// least: then one slow first iteration does not bend the beginning of the line.
std::size_t smoothing_window(std::size_t iterations) {
  return 2 * std::clamp<std::size_t>(iterations / 40, 2, 50) + 1;
}

double steady_top(const std::vector<double>& values, const IterationIndex& index) {
  std::vector<double> steady;
  for (std::size_t row = 1; row < values.size(); ++row)
    if (!index.warmup[row]) steady.push_back(values[row]);
  const double top = quantile(steady, kSteadyQuantile);
  return std::isfinite(top) ? top : quantile(values, 1);
}

std::string title_of(const std::vector<RunLine>& lines) {
  const Run& first = *lines.front().run;
  std::string title = count_text(first.ranks, "rank");
  const bool scheduled = std::ranges::any_of(
      lines, [](const RunLine& line) { return !batch_schedule(*line.run).empty(); });
  if (!scheduled && !differ(lines, &Run::batch_global))
    title += ", " + batch_text(first) +
             (first.batch_global > 0 ? fmt::format(" ({} global)", first.batch_global) : "");
  return title;
}

void tell_apart(std::vector<RunLine>& lines) {
  const bool models = differ(lines, &Run::model), batches = differ(lines, &Run::batch_global);
  std::vector<std::string> labels;
  std::vector<RunGroup> groups;
  for (const RunLine& line : lines) {
    const Run& run = *line.run;
    groups.push_back({{line.run}});
    std::string& label = labels.emplace_back(run.mode);
    if (is_control(run)) label += " (control)";
    if (models) label += ", " + run.model;
    if (!batch_schedule(run).empty())
      label += ", " + batch_text(run);
    else if (batches)
      label +=
          run.batch_global > 0 ? fmt::format(", batch {}", run.batch_global) : ", unknown batch";
  }
  labels = told_apart(std::move(labels), pointers_to(groups), ", ", ", run {}");
  ModeDashes dashes;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Run& run = *lines[i].run;
    lines[i].label = labels[i];
    if (run.reader->status() != RunStatus::kComplete)
      lines[i].label += fmt::format(" ({})", run.status());
    lines[i].dash = dashes.next(run.mode);
  }
}

/// Ends the y axis above the 98 % quantile after warm-up, if a few values would flatten all others.
void cut_high_values(const std::vector<RunLine>& lines, ChartPanel& panel) {
  double end = 0, largest = 0;
  std::size_t points = 0, above = 0;
  for (const RunLine& line : lines)
    end = std::max(end, kHeadroom * line.steady_top);
  for (const RunLine& line : lines)
    for (const ChartPoint& point : line.values) {
      if (!std::isfinite(point.y)) continue;
      largest = std::max(largest, point.y);
      ++points;
      above += point.y > end ? 1 : 0;
    }
  if (!(end > 0 && largest > kWorthEnding * end)) return;
  panel.y_top = end;
  panel.subtitle =
      fmt::format("y axis cut at {} x the 98 % quantile after warm-up: {} of {} points above",
                  kHeadroom, above, points);
}

std::vector<NamedText> keys_of(const RunLine& line, const char* statistic) {
  std::vector<NamedText> keys = run_keys(*line.run);
  keys.push_back({"statistic", statistic});
  return keys;
}

/// The runs of one number of ranks that have a finite value. All points before all lines, so that
/// no line lies under another's points. Where lines `coincide`, earlier ones are drawn wider: with
/// the usual four modes 8, 6, 4 and 2.
std::optional<ChartPanel> panel_of(const std::vector<const Run*>& runs, const ValuesOf& values_of,
                                   bool coincide) {
  std::vector<RunLine> lines;
  std::size_t left_out = 0;
  for (const Run* run : runs) {
    const std::vector<double> values = values_of(*run->reader);
    if (std::ranges::none_of(values, [](double value) { return std::isfinite(value); })) continue;
    if (lines.size() == kMostLines) {
      ++left_out;
      continue;
    }
    const IterationIndex& index = run->reader->index();
    lines.push_back({run, "", 1, thinned(index, values),
                     thinned(index, moving_median(values, smoothing_window(values.size()))),
                     steady_top(values, index)});
  }
  if (lines.empty()) return std::nullopt;
  tell_apart(lines);
  ChartPanel panel{title_of(lines), "", {}};
  cut_high_values(lines, panel);
  if (left_out > 0)
    panel.subtitle += fmt::format("{}{} not shown", panel.subtitle.empty() ? "" : "; ",
                                  count_text(left_out, "more run"));
  for (const RunLine& line : lines)
    panel.series.push_back(
        {"", Mark::kPoints, mode_color(line.run->mode), 1, 1, line.values, keys_of(line, "value")});
  const auto last = static_cast<double>(lines.size() - 1);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const RunLine& line = lines[i];
    const double below = last - static_cast<double>(i);
    panel.series.push_back({line.label, Mark::kLine, mode_color(line.run->mode), line.dash,
                            coincide ? 2 + 6 * below / std::max(3.0, last) : 2, line.smoothed,
                            keys_of(line, "moving median")});
  }
  return panel;
}

/// "resnet18" or "2 models".
std::string models_text(const RunSet& set) {
  std::set<std::string> models;
  for (const Run& run : set.runs)
    models.insert(run.model);
  return models.size() == 1 ? *models.begin() : fmt::format("{} models", models.size());
}

std::optional<Chart> against_iteration(const RunSet& set, const std::string& what, ChartAxis y,
                                       bool coincide, const ValuesOf& values_of) {
  std::map<std::int64_t, std::vector<const Run*>> by_ranks;
  for (const Run& run : set.runs)
    by_ranks[run.ranks].push_back(&run);
  Chart chart{
      what + ", " + models_text(set),
      {"Points: single iterations, mean over the ranks, first ones included.",
       "Lines: their moving median over 5 to 101 iterations, about a twentieth of the run."},
      {"iteration", "iteration", "", 0, true},
      std::move(y),
      {}};
  for (const auto& [ranks, runs] : by_ranks)
    if (auto panel = panel_of(runs, values_of, coincide)) chart.panels.push_back(std::move(*panel));
  if (chart.panels.empty()) return std::nullopt;
  return chart;
}

}  // namespace

std::optional<Chart> make_loss_plot(const RunSet& set) {
  return against_iteration(set, "Loss against iteration",
                           {"loss", "training loss, mean over ranks", "", 0, false}, true,
                           [](RunReader& run) { return mean_over_ranks(run, loss_blocks()); });
}

std::optional<Chart> make_iteration_time_plot(const RunSet& set) {
  return against_iteration(set, "Iteration time",
                           {"iteration_ms", "iteration time (ms), mean over ranks", "ms", 0, true},
                           false, [](RunReader& run) {
                             std::vector<double> values = mean_over_ranks(run, Phase::kIteration);
                             for (double& value : values)
                               value *= 1e3;
                             return values;
                           });
}

}  // namespace gradsync::report
