#include "analysis/plots/registry.h"

#include "analysis/plots/plots.h"

namespace gradsync {

const std::vector<PlotSpec>& plots() {
  static const std::vector<PlotSpec> all = {
      {"loss", "training loss against the iteration", make_loss_plot},
      {"iteration-time", "iteration time against the iteration", make_iteration_time_plot},
      {"split", "compute, hidden and exposed communication, other: a bar a mode", make_split_plot},
      {"speedup", "speedup against ranks, strong and weak, with the ideal line", make_speedup_plot},
      {"epoch-time", "training time of an epoch against the batch size", make_epoch_time_plot},
      {"busbw", "bus bandwidth against message size, calibration and training", make_busbw_plot},
      {"prediction", "iteration time that the scaling model predicts, beside what was measured",
       make_prediction_plot},
  };
  return all;
}

std::vector<NamedChart> make_charts(const RunSet& set, std::vector<std::string>& missing) {
  std::vector<NamedChart> charts;
  for (const PlotSpec& plot : plots()) {
    if (auto chart = plot.make(set))
      charts.push_back({plot.name, plot.description, std::move(*chart)});
    else
      missing.push_back(plot.name);
  }
  return charts;
}

}  // namespace gradsync
