#include "analysis/plots/registry.h"

#include "analysis/plots/plots.h"

namespace gradsync::report {

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
      {"weights", "int8: histogram of the weights of each layer", of_runs(make_weights_plot), true},
      {"weights-int8", "int8: the integers that the weights become",
       of_runs(make_weights_int8_plot), true},
      {"activations", "int8: histogram of what each layer gives", of_runs(make_activations_plot),
       true},
      {"activations-int8", "int8: the integers that activations become",
       of_runs(make_activations_int8_plot), true},
      {"bias", "int8: histogram of the biases", of_runs(make_bias_plot), true},
      {"inference", "int8: how far each layer is from fp32", of_runs(make_inference_plot), true},
      {"accuracy", "int8: accuracy lost in each step and variant", of_runs(make_accuracy_plot),
       true},
      {"int8-speed", "int8: images per second of every path", of_runs(make_int8_speed_plot), true},
  };
  return all;
}

std::vector<NamedChart> make_charts(const PlotInput& input, std::vector<std::string>& missing) {
  std::vector<NamedChart> charts;
  const RunSet& set = input.runs.set();
  for (const PlotSpec& plot : plots()) {
    if (plot.of_quantized ? set.quantized.empty() : set.runs.empty()) continue;
    if (auto chart = plot.make(input))
      charts.push_back({plot.name, plot.description, std::move(*chart)});
    else
      missing.push_back(plot.name);
  }
  return charts;
}

}  // namespace gradsync::report
