#include "analysis/plots/line_figure.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/plots/run_marks.h"

namespace gradsync::report {

namespace {

constexpr double kHeadroom = 1.15;               // above the quantile, if the axis is cut there
constexpr double kLineFigureWorthCutting = 1.5;  // times that end: below it all points are shown

std::vector<ChartPoint> line_figure_points_of(const Series& series,
                                              const std::vector<double>& values) {
  std::vector<ChartPoint> points;
  for (std::size_t i = 0; i < values.size(); ++i)
    points.push_back({series.iteration[i], values[i]});
  return points;
}

std::vector<NamedText> keys_of(const Series& series, const char* statistic) {
  std::vector<NamedText> keys = run_keys(*series.run);
  keys.push_back({"statistic", statistic});
  return keys;
}

std::string line_figure_subtitle(const Panel& panel, const Clip& clip) {
  std::string text;
  if (clip.above > 0)
    text = fmt::format("y axis cut at {} x the 98 % quantile after warm-up: {} of {} points above",
                       kHeadroom, clip.above, clip.points);
  if (panel.left_out > 0)
    text += fmt::format("{}{} more runs not shown", text.empty() ? "" : "; ", panel.left_out);
  return text;
}

// With the usual four modes 8, 6, 4 and 2.
double line_width(const LineFigure& figure, const Panel& panel, std::size_t series) {
  if (!figure.coincide) return 2;
  const auto below = static_cast<double>(panel.series.size() - 1 - series);
  return 2 + 6 * below / std::max(3.0, static_cast<double>(panel.series.size() - 1));
}

// All points before all lines, so that no line lies under another's points.
ChartPanel line_figure_panel_of(const LineFigure& figure, const Panel& panel) {
  const Clip clip = clip_of(panel);
  ChartPanel result{panel.title, line_figure_subtitle(panel, clip), {}, {}, clip.top, false};
  for (const Series& series : panel.series)
    result.series.push_back({"", Mark::kPoints, series.color, 1, 1,
                             line_figure_points_of(series, series.value),
                             keys_of(series, "value")});
  for (std::size_t i = 0; i < panel.series.size(); ++i) {
    const Series& series = panel.series[i];
    result.series.push_back(
        {series.label, Mark::kLine, series.color, series.dash, line_width(figure, panel, i),
         line_figure_points_of(series, series.smooth), keys_of(series, "moving median")});
  }
  return result;
}

}  // namespace

Clip clip_of(const Panel& panel) {
  Clip clip;
  double largest = 0;
  for (const Series& series : panel.series) {
    clip.top = std::max(clip.top, kHeadroom * series.steady_top);
    for (const double value : series.value)
      if (std::isfinite(value)) largest = std::max(largest, value);
  }
  for (const Series& series : panel.series)
    for (const double value : series.value) {
      clip.points += std::isfinite(value) ? 1 : 0;
      clip.above += value > clip.top ? 1 : 0;
    }
  if (clip.top > 0 && largest > kLineFigureWorthCutting * clip.top) return clip;
  return {kNotMeasured, 0, clip.points};
}

std::vector<std::string> line_caption() {
  return {"Points: single iterations, mean over the ranks, first ones included.",
          "Lines: their moving median over 5 to 101 iterations, about a twentieth of the run."};
}

Chart chart_of(const LineFigure& figure) {
  Chart chart{figure.title, figure.caption, {"iteration", "iteration", "", 0, true}, figure.y, {}};
  for (const Panel& panel : figure.panels)
    chart.panels.push_back(line_figure_panel_of(figure, panel));
  return chart;
}

}  // namespace gradsync::report
