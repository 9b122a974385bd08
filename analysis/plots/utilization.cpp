#include "analysis/figures/utilization.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "analysis/figures/run_group.h"
#include "analysis/plots/plots.h"
#include "analysis/plots/run_marks.h"
#include "base/parse.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

constexpr std::size_t kMostUtilizationCells = 24;  // more cannot be read
constexpr std::size_t kMostUprightCells = 4;

struct Measure {
  const char* label;
  const char* color;
  double Utilization::*value;
};
constexpr std::array<Measure, 5> kMeasures = {
    {{"compute, of the time", "#56b4e9", &Utilization::compute},
     {"link busy, of the time", "#d55e00", &Utilization::link_busy},
     {"FLOP/s, of the probe", "#009e73", &Utilization::of_probe},
     {"FLOP/s, of the data sheet", "#003f66", &Utilization::of_data_sheet},
     {"GPU busy, of the time", "#cc79a7", &Utilization::gpu_busy}}};

/// The mean over ranks and repeats, with the least and the most of a rank.
ChartPoint utilization_point(const std::vector<Utilization>& ranks, const Measure& measure,
                             double x, const std::string& name) {
  std::vector<double> percents;
  for (const Utilization& rank : ranks)
    if (std::isfinite(rank.*measure.value)) percents.push_back(1e2 * rank.*measure.value);
  const Statistics figures = statistics(percents);
  return {x, figures.mean, figures.minimum, figures.maximum, name};
}

std::vector<Utilization> of_all_ranks(const RunGroup& group) {
  std::vector<Utilization> all;
  for (const Run* run : group.repeats)
    for (const Utilization& rank : utilization(*run, kNotMeasured))
      all.push_back(rank);
  return all;
}

bool measured_anywhere(const ChartSeries& series) {
  return std::any_of(series.points.begin(), series.points.end(),
                     [](const ChartPoint& point) { return std::isfinite(point.y); });
}

/// Cells of one model on one number of ranks.
ChartPanel utilization_panel(std::vector<const RunGroup*> groups) {
  const Run& first = groups.front()->first();
  ChartPanel panel{first.model + ", " + count_text(first.ranks, "rank"), "", {}, {}};
  if (groups.size() > kMostUtilizationCells) {
    panel.subtitle = fmt::format("{} more not shown", groups.size() - kMostUtilizationCells);
    groups.resize(kMostUtilizationCells);
  }
  panel.slanted = groups.size() > kMostUprightCells;
  const auto names = labels_of(groups, {Trait::kMode, Trait::kBatchAlone});
  std::vector<std::vector<Utilization>> cells;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    cells.push_back(of_all_ranks(*groups[i]));
    panel.x_ticks.push_back({static_cast<double>(i + 1), names[i]});
  }
  for (const Measure& measure : kMeasures) {
    ChartSeries series{measure.label, Mark::kMarkers, measure.color, 1, 2, {}, {}};
    for (std::size_t i = 0; i < cells.size(); ++i)
      series.points.push_back(
          utilization_point(cells[i], measure, static_cast<double>(i + 1), names[i]));
    if (measured_anywhere(series)) panel.series.push_back(series);
  }
  return panel;
}

}  // namespace

std::optional<Chart> make_utilization_plot(const RunSet& set) {
  Chart chart{
      "How far ranks and links are used",
      {"Means over ranks, repeats and steady iterations; whiskers: least and most of a rank."},
      {"cell", "mode, batch per rank", "", 0, false},
      {"percent", "used (%)", "%", 0, true},
      {}};
  const std::vector<RunGroup> groups = group_runs(set);
  std::map<std::pair<std::string, std::int64_t>, std::vector<const RunGroup*>> panels;
  for (const RunGroup& group : groups)
    panels[{group.first().model, group.first().ranks}].push_back(&group);
  for (const auto& [key, cells] : panels)
    if (ChartPanel panel = utilization_panel(cells); !panel.series.empty())
      chart.panels.push_back(std::move(panel));
  if (chart.panels.empty()) return std::nullopt;
  add_waiting_sentence(set, chart);
  return chart;
}

}  // namespace gradsync::report
