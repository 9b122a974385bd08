#include "analysis/plots/registry.h"

#include "analysis/plots/plots.h"

namespace gradsync {

const std::vector<PlotSpec>& plots() {
  static const std::vector<PlotSpec> all = {
      {"loss", "loss against iteration, mean over the ranks, a line per run", make_loss_plot},
      {"iteration-time", "time in ms against iteration, mean over the ranks, a line per run",
       make_iteration_time_plot},
  };
  return all;
}

}  // namespace gradsync
