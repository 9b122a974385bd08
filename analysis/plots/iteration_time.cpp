#include "analysis/plots/line_figure.h"
#include "analysis/plots/plots.h"
#include "analysis/read/columns.h"

namespace gradsync::report {

namespace {

std::vector<double> iteration_ms(RunReader& run) {
  std::vector<double> values = mean_over_ranks(run, Phase::kIteration);
  for (double& value : values)
    value *= 1e3;
  return values;
}

}  // namespace

std::optional<Chart> make_iteration_time_plot(const RunSet& set) {
  const auto panels = make_panels(set, iteration_ms);
  if (panels.empty()) return std::nullopt;
  return chart_of({"Iteration time, " + models_text(set),
                   {"iteration_ms", "iteration time (ms), mean over ranks", "ms", 0, true},
                   false,
                   line_caption(),
                   panels});
}

}  // namespace gradsync::report
