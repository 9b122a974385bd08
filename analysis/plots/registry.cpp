#include "analysis/plots/registry.h"

#include "analysis/plots/plots.h"

namespace gradsync {

namespace {

std::function<std::optional<Chart>(const PlotInput&)> of_runs(
    std::optional<Chart> (*make)(const RunSet& set)) {
  return [make](const PlotInput& input) { return make(input.runs.set()); };
}

}  // namespace

const std::vector<PlotSpec>& plots() {
  static const std::vector<PlotSpec> all = {
      {"loss", "training loss against the iteration", of_runs(make_loss_plot)},
      {"iteration-time", "iteration time against the iteration", of_runs(make_iteration_time_plot)},
      {"split", "compute, hidden and exposed communication, other: a bar a mode",
       of_runs(make_split_plot)},
      {"speedup", "speedup against ranks, strong and weak, with the ideal line",
       of_runs(make_speedup_plot)},
      {"epoch-time", "training time of an epoch against the batch size",
       of_runs(make_epoch_time_plot)},
      {"large-batch", "test accuracy against the global batch, a line a remedy",
       of_runs(make_large_batch_plot)},
      {"busbw", "bus bandwidth against message size, calibration and training",
       of_runs(make_busbw_plot)},
      {"prediction", "iteration time that the scaling model predicts, beside what was measured",
       make_prediction_plot},
  };
  return all;
}

std::vector<NamedChart> make_charts(const PlotInput& input, std::vector<std::string>& missing) {
  std::vector<NamedChart> charts;
  for (const PlotSpec& plot : plots()) {
    if (auto chart = plot.make(input))
      charts.push_back({plot.name, plot.description, std::move(*chart)});
    else
      missing.push_back(plot.name);
  }
  return charts;
}

}  // namespace gradsync
