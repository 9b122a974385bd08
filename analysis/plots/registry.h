#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/charts/chart.h"
#include "analysis/run_set.h"

namespace gradsync {

/// A plot of the report. A new one is a file with a `make` function and a line in registry.cpp.
struct PlotSpec {
  std::string name;
  std::string description;
  /// Nothing if the runs hold no numbers for it.
  std::optional<Chart> (*make)(const RunSet& set);
};

const std::vector<PlotSpec>& plots();

/// A plot that the runs hold numbers for.
struct NamedChart {
  std::string name, description;
  Chart chart;
};

/// All of them, in the order of the registry; `missing` receives the names of the others.
std::vector<NamedChart> make_charts(const RunSet& set, std::vector<std::string>& missing);

}  // namespace gradsync
