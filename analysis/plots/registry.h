#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/run_set.h"

namespace gradsync {

/// A plot as the two files it is drawn from: numbers, and a gnuplot script that reads them.
struct Figure {
  std::string csv;     ///< tidy: a row an observation, a header row
  std::string script;  ///< `gnuplot -c NAME.gnuplot png|svg PICTURE NAME.csv`
};

/// A plot of the report. A new one is a file with a `make` function and a line in registry.cpp.
struct PlotSpec {
  std::string name;
  std::string description;
  /// Nothing if the runs hold no numbers for it.
  std::optional<Figure> (*make)(const RunSet& set);
};

const std::vector<PlotSpec>& plots();

}  // namespace gradsync
