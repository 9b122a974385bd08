#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "analysis/read/run_set.h"

namespace gradsync::report {

/// A run as a line of a plot against the iteration.
struct Series {
  const Run* run = nullptr;
  std::string label;
  std::string color;              ///< "#rrggbb"
  int dash = 1;                   ///< tells apart runs of one mode
  std::vector<double> iteration;  ///< counted from 1
  std::vector<double> value;
  std::vector<double> smooth;  ///< moving median
  double steady_top = 0;       ///< 98 % quantile of the values after warm-up
};

/// The runs of one number of ranks.
struct Panel {
  std::string title;
  std::vector<Series> series;
  std::size_t left_out = 0;  ///< runs beyond what can be told apart
};

/// A value of a run for each iteration.
using ValuesOf = std::function<std::vector<double>(RunReader& run)>;

/// One panel for each number of ranks. Runs without any finite value are left out, of a series
/// longer than 2,000 iterations every nth is kept (the moving median is taken before).
std::vector<Panel> make_panels(const RunSet& set, const ValuesOf& values_of);

/// What all runs of the panels share, for the title: "resnet18" or "2 models".
std::string models_text(const RunSet& set);

}  // namespace gradsync::report
