// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "analysis/plots/chart.h"
#include "analysis/tables/tables.h"
#include "base/table.h"

namespace gradsync::report {

/// What plots are made from.
struct PlotInput {
  const RunStudy& runs;
  const std::vector<Table>& made;  ///< the tables of the report that there are already
  const TableOptions& options;     ///< what they were made with

  /// What needs no tables takes it as well.
  operator const RunStudy&() const { return runs; }
  operator const RunSet&() const { return runs.set(); }
};

/// Nothing if the runs hold no numbers for the plot.
using PlotMaker = std::function<std::optional<Chart>(const PlotInput& input)>;

/// A plot of the report; plots.def lists them.
struct PlotSpec {
  std::string name;
  std::string description;
  bool of_quantized = false;  ///< of files of gradsync-quantize, not of training runs
  PlotMaker make;
};

const std::vector<PlotSpec>& plots();

/// A plot that the runs hold numbers for.
struct NamedChart {
  std::string name;
  Chart chart;
};

/// All of them, in the order of the registry; `missing` receives the names of the others.
std::vector<NamedChart> make_charts(const PlotInput& input, std::vector<std::string>& missing);

/// The plots, a function each.
#define GRADSYNC_PLOT(id, input, ...) std::optional<Chart> make_##id##_plot(const input&);
#include "analysis/plots/plots.def"
#undef GRADSYNC_PLOT

/// The plot of table `prediction`, found by the names of its columns; nothing if none of its cells
/// was measured.
std::optional<Chart> prediction_chart(const Table& table);

}  // namespace gradsync::report
