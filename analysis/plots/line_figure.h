#pragma once

#include <string>
#include <vector>

#include "analysis/plots/chart.h"
#include "analysis/plots/series.h"

namespace gradsync::report {

/// Lines against the iteration, a panel for each number of ranks.
struct LineFigure {
  std::string title;
  ChartAxis y;
  bool coincide = false;  ///< lines may lie on each other: earlier ones are drawn wider
  std::vector<std::string> caption;
  std::vector<Panel> panels;
};

/// Faint points are the values, lines their moving median. A panel in which a few values would
/// flatten all others ends above the 98 % quantile after warm-up; its title states it.
Chart chart_of(const LineFigure& figure);

/// What points and lines are, for the caption.
std::vector<std::string> line_caption();

/// Where the y axis of a panel ends, and how many of its points lie above.
struct Clip {
  double top = 0;  ///< NaN: no end is set
  std::size_t above = 0;
  std::size_t points = 0;
};
Clip clip_of(const Panel& panel);

}  // namespace gradsync::report
