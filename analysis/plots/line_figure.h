#pragma once

#include <string>
#include <vector>

#include "analysis/plots/registry.h"
#include "analysis/plots/series.h"

namespace gradsync {

/// Lines against the iteration, a panel for each number of ranks, legends below.
struct LineFigure {
  std::string title;
  std::string value_name;  ///< column of the CSV, e.g. "loss", "iteration_ms"
  std::string y_label;     ///< with its unit
  bool from_zero = false;  ///< the y axis begins at 0
  bool coincide = false;   ///< lines may lie on each other: earlier ones are drawn wider
  std::vector<Panel> panels;
};

/// Faint points are the values, lines their moving median. A panel in which a few values would
/// flatten all others ends above the 98 % quantile after warm-up, and its title says so.
Figure render(const LineFigure& figure);

/// Where the y axis of a panel ends, and how many of its points lie above.
struct Clip {
  double top = 0;  ///< NaN: no end is set
  std::size_t above = 0;
  std::size_t points = 0;
};
Clip clip_of(const Panel& panel);

/// `text` as a gnuplot string in which nothing has a meaning.
std::string gnuplot_text(const std::string& text);

}  // namespace gradsync
