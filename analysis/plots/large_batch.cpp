#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/figures/epoch_figures.h"
#include "analysis/figures/remedy.h"
#include "analysis/plots/plots.h"
#include "analysis/plots/run_marks.h"
#include "base/parse.h"
#include "stats/estimate.h"

namespace gradsync::report {

namespace {

constexpr std::size_t kLargeBatchMostLines = 8;  // of a panel; more cannot be told apart

// Okabe and Ito, "Color Universal Design" (2008).
constexpr std::array<const char*, kLargeBatchMostLines> kLargeBatchColors = {
    "#555555", "#d55e00", "#0072b2", "#009e73", "#e69f00", "#cc79a7", "#56b4e9", "#000000"};

/// Groups of one remedy, mode, number of ranks and further settings.
struct LargeBatchLine {
  std::string remedy, where;
  const RunGroup* first = nullptr;
  std::vector<ChartPoint> points;
};

struct LargeBatchCounts {
  std::size_t least = 0, most = 0;  // repeats
  std::set<std::int64_t> epochs;
};

/// Nothing where the group has no test accuracy of a whole epoch.
std::optional<ChartPoint> large_batch_point_of(const RunGroup& group, LargeBatchCounts& counts) {
  const AccuracyAt at = accuracy_at(group, last_common_epoch(group));
  const Estimate test = mean_estimate(at.test_percent);
  if (test.count == 0 || !at.whole) return std::nullopt;
  counts.least = counts.most == 0 ? test.count : std::min(counts.least, test.count);
  counts.most = std::max(counts.most, test.count);
  counts.epochs.insert(at.epoch);
  return ChartPoint{static_cast<double>(largest_batch(group.first())), test.value, test.low,
                    test.high};
}

/// "ddp, 2 ranks", with further settings in which the groups differ.
std::string where_of(const RunGroup& group, const std::vector<std::string>& settings) {
  const std::string text = settings_text(group.first(), settings);
  return fmt::format("{}, {}{}{}", group.first().mode, count_text(group.first().ranks, "rank"),
                     text.empty() ? "" : ", ", text);
}

void add_to(std::vector<LargeBatchLine>& lines, const std::string& remedy, const std::string& where,
            const RunGroup& group, const ChartPoint& point) {
  auto line = std::find_if(lines.begin(), lines.end(), [&](const LargeBatchLine& one) {
    return one.remedy == remedy && one.where == where;
  });
  if (line == lines.end()) line = lines.insert(lines.end(), {remedy, where, &group, {}});
  line->points.push_back(point);
}

/// Plain training first, then the lines over most batches, then those that end highest.
bool stands_before(const LargeBatchLine& one, const LargeBatchLine& other) {
  const auto rank = [](const LargeBatchLine& line) {
    return std::tuple(line.remedy != "none", -static_cast<int>(line.points.size()),
                      -line.points.back().y);
  };
  return rank(one) < rank(other);
}

bool in_one_place(const std::vector<LargeBatchLine>& lines) {
  return std::all_of(lines.begin(), lines.end(),
                     [&](const LargeBatchLine& line) { return line.where == lines.front().where; });
}

/// Lines that meet at a batch stand beside each other there, or their bars would hide each other.
std::vector<ChartPoint> set_apart(std::vector<ChartPoint> points, std::size_t number,
                                  std::size_t lines) {
  constexpr double kStep = 0.09;  // of a doubling
  const double from_middle = static_cast<double>(number) - static_cast<double>(lines - 1) / 2;
  for (ChartPoint& point : points) {
    point.name = fmt::format("{:.0f}", point.x);
    point.x *= std::exp2(kStep * from_middle);
  }
  return points;
}

ChartSeries series_of(const LargeBatchLine& line, std::size_t number, std::size_t lines,
                      bool say_where) {
  return {say_where ? fmt::format("{} ({})", line.remedy, line.where) : line.remedy,
          Mark::kLinePoints,
          kLargeBatchColors[number],
          static_cast<int>(number % 2) + 1,
          2,
          set_apart(line.points, number, lines),
          group_keys(*line.first)};
}

ChartPanel large_batch_panel_of(std::vector<LargeBatchLine> lines) {
  for (LargeBatchLine& line : lines)
    std::stable_sort(line.points.begin(), line.points.end(),
                     [](const ChartPoint& a, const ChartPoint& b) { return a.x < b.x; });
  std::stable_sort(lines.begin(), lines.end(), stands_before);
  const std::size_t left_out =
      lines.size() > kLargeBatchMostLines ? lines.size() - kLargeBatchMostLines : 0;
  lines.resize(lines.size() - left_out);
  const bool one_place = in_one_place(lines);
  const std::string& model = lines.front().first->first().model;
  ChartPanel panel{one_place ? fmt::format("{}, {}", model, lines.front().where) : model,
                   left_out > 0 ? fmt::format("{} more remedies: table large-batch", left_out) : "",
                   {},
                   {},
                   kNotMeasured,
                   false};
  std::set<double> batches;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    panel.series.push_back(series_of(lines[i], i, lines.size(), !one_place));
    for (const ChartPoint& point : lines[i].points)
      batches.insert(point.x);
  }
  for (const double batch : batches)
    panel.x_ticks.push_back({batch, fmt::format("{:.0f}", batch)});
  return panel;
}

std::vector<std::string> large_batch_caption(const LargeBatchCounts& counts) {
  return {
      fmt::format("Test accuracy at the end of epoch {}, mean of n = {} repeats; bars: 95 % "
                  "interval of Student's t.",
                  fmt::join(counts.epochs, ", "),
                  counts.least == counts.most ? std::to_string(counts.most)
                                              : fmt::format("{} to {}", counts.least, counts.most)),
      "A line is a remedy, mode and number of ranks; of a batch schedule the largest batch is "
      "shown. The lines of a batch are drawn side by side around its tick."};
}

}  // namespace

std::optional<Chart> make_large_batch_plot(const RunSet& set) {
  const auto groups = group_runs(set);
  std::map<std::string, std::vector<LargeBatchLine>> panels;  // by model
  auto settings = differing_options(pointers_to(groups));
  std::erase_if(settings, is_remedy_option);
  std::map<std::string, std::set<std::int64_t>> batches;
  LargeBatchCounts counts;
  for (const RunGroup& group : groups) {
    const Run& run = group.first();
    const auto point = run.batch_global > 0 ? large_batch_point_of(group, counts) : std::nullopt;
    if (!point) continue;
    batches[run.model].insert(largest_batch(run));
    const std::string remedy = remedy_text(group, smallest_batch(groups, group));
    add_to(panels[run.model], remedy, where_of(group, settings), group, *point);
  }
  Chart chart{"Accuracy against global batch",
              large_batch_caption(counts),
              {"batch_global", "global batch size", "", 2, false},
              {"test_accuracy_percent", "test accuracy (%)", "%", 0, true},
              {}};
  for (auto& [model, lines] : panels)
    if (batches[model].size() > 1) chart.panels.push_back(large_batch_panel_of(std::move(lines)));
  if (chart.panels.empty()) return std::nullopt;
  return chart;
}

}  // namespace gradsync::report
