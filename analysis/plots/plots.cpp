// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/plots/plots.h"

#include <algorithm>
#include <iterator>

namespace gradsync::report {

const std::vector<PlotSpec>& plots() {
  static const std::vector<PlotSpec> all = {
#define GRADSYNC_PLOT(id, input, ...) {__VA_ARGS__, .make = make_##id##_plot},
#include "analysis/plots/plots.def"
#undef GRADSYNC_PLOT
  };
  return all;
}

std::vector<NamedChart> make_charts(const PlotInput& input, std::vector<std::string>& missing) {
  std::vector<NamedChart> charts;
  const RunSet& set = input.runs.set();
  for (const PlotSpec& plot : plots()) {
    if (plot.of_quantized ? set.quantized.empty() : set.runs.empty()) continue;
    auto chart = plot.make(input);
    if (!chart) {
      missing.push_back(plot.name);
      continue;
    }
    std::ranges::move(coinciding_lines(*chart), std::back_inserter(chart->caption));
    charts.push_back({plot.name, std::move(*chart)});
  }
  return charts;
}

}  // namespace gradsync::report
