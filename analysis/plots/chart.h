// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <string>
#include <vector>

#include "record/run.h"

/// A plot as numbers, which svg.h draws.
namespace gradsync::report {

/// One mark. NaN means "not there": a point without y is a gap in a line.
struct ChartPoint {
  double x = kNotMeasured, y = kNotMeasured;
  double low = kNotMeasured, high = kNotMeasured;  ///< ends of its interval, or of its bar
  std::string name = {};                           ///< what stands at x, where x is only a place
};

/// Patterns of lines, from 1 on.
inline constexpr int kLineDashes = 11;

enum class Mark {
  kLine,
  kPoints,      ///< faint points below lines
  kLinePoints,  ///< a line through points, with their intervals
  kMarkers,     ///< plain points, with their intervals
  kBar,         ///< a box from low to high at x
  kHatchedBar,  ///< the same, hatched over another one
  kWhisker,     ///< only the interval
  kBand,        ///< a box from low to high, as wide as the panel
};
inline constexpr std::array<const char*, 8> kMarkNames = {
    "line", "points", "line-points", "markers", "bar", "hatched-bar", "whisker", "band"};

/// Half the width of a bar, in steps between two bars.
inline constexpr double kBarHalfWidth = 0.36;

struct ChartSeries {
  std::string label;  ///< of the legend; empty: not in it
  Mark mark = Mark::kLine;
  std::string
      color;  ///< "#rrggbb", which its markers have a shape of their own for; empty: that of text
  int dash = 1;  ///< 1 solid, 2 to 6 dashed
  double width = 2;
  std::vector<ChartPoint> points;
  std::vector<NamedText> keys = {};  ///< columns of the CSV: which runs these are
};

struct ChartTick {
  double at = 0;
  std::string text;
};

struct ChartAxis {
  std::string column;  ///< machine name with its unit: "iteration_ms"
  std::string label;   ///< with its unit
  std::string unit;    ///< for values shown on hovering; may be empty
  double log = 0;      ///< base of a logarithmic axis, 0: linear
  bool from_zero = false;
};

/// Axes, side by side with the other panels.
struct ChartPanel {
  std::string title;
  std::string subtitle;
  std::vector<ChartSeries> series;
  std::vector<ChartTick> x_ticks = {};  ///< empty: chosen by the renderer
  double y_top = kNotMeasured;          ///< where the y axis is cut; NaN: it holds all
  bool slanted = false;                 ///< the x ticks are names, and too many to stand upright
};

struct Chart {
  std::string title;
  std::vector<std::string> caption;  ///< sentences: n, base, interval, what was left out
  ChartAxis x, y;
  std::vector<ChartPanel> panels;
};

/// Ends of an axis.
struct ChartRange {
  double from = 0, to = 1;
};

/// Holds every finite point and its interval, with some air: on a logarithmic axis half a step of
/// its base around, values that are not positive left out. The y axis is the same in all panels,
/// unless it is cut or that would leave a panel less than a tenth of it.
ChartRange x_range(const Chart& chart, const ChartPanel& panel);
ChartRange y_range(const Chart& chart, const ChartPanel& panel);

/// Round numbers for an axis: 1, 2 or 5 times a power of ten, or powers of the base.
std::vector<ChartTick> round_ticks(const ChartAxis& axis, const ChartRange& range, int about);

/// The numbers as a tidy CSV: panel, series, x, y, low, high (numbers first, so that a script can
/// count columns whatever the names hold), then mark, name, label and the keys of the series.
std::string chart_csv(const Chart& chart);

/// A sentence for each panel in which labeled lines lie on each other: "4 ranks: ddp and c10d
/// coincide."
std::vector<std::string> coinciding_lines(const Chart& chart);

/// The caption as one text.
std::string caption_text(const Chart& chart);

}  // namespace gradsync::report
