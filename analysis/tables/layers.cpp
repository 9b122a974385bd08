#include <algorithm>
#include <cmath>

#include "analysis/figures/utilization.h"
#include "analysis/tables/tables.h"
#include "stats/bandwidth.h"

namespace gradsync::report {

namespace {

std::vector<Column> layers_columns() {
  std::vector<Column> result = {
      {"model", "model", true},
      {"layer", "layer", true},
      {"operation", "operation", true},
      {"parameters", "parameters", false, "numbers in its parameters", "/layer/parameters"},
      {"gradient_mib", "gradient MiB", false, "4 B x parameters / 2^20", "/layer/parameters"},
      {"forward_mflop", "forward MFLOP", false, "of one image", "/layer/forward"},
      {"backward_mflop", "backward MFLOP", false, "of one image", "/layer/backward"},
      {"bytes_per_mflop", "B/MFLOP", false, "4 B x parameters / (forward + backward)",
       "/layer/parameters, /layer/forward, /layer/backward"}};
  keep(result, {"layer", "parameters", "forward_mflop", "backward_mflop"});
  return result;
}

std::vector<Cell> layers_row(const std::string& model, const LayerRow& layer) {
  constexpr double kBytes = 4;
  const auto parameters = static_cast<double>(layer.parameters);
  return {model,
          layer.name,
          layer.operation.empty() ? "not counted" : layer.operation,
          Cell::count(parameters),
          Cell::of(kBytes * parameters / kMiB, 3),
          Cell::of(1e-6 * layer.forward_flop, 3),
          Cell::of(1e-6 * layer.backward_flop, 3),
          Cell::of(kBytes * parameters / (1e-6 * (layer.forward_flop + layer.backward_flop)), 1)};
}

LayerRow sum_of(const std::vector<LayerRow>& layers) {
  LayerRow sum{"all", "sum", 0, 0, 0};
  for (const LayerRow& layer : layers) {
    sum.parameters += layer.parameters;
    if (std::isfinite(layer.forward_flop)) sum.forward_flop += layer.forward_flop;
    if (std::isfinite(layer.backward_flop)) sum.backward_flop += layer.backward_flop;
  }
  return sum;
}

}  // namespace

bool has_layers(const RunSet& set, const TableOptions&) {
  return std::any_of(set.runs.begin(), set.runs.end(),
                     [](const Run& run) { return !run.reader->layers().empty(); });
}

/// Each network once: its layers do not depend on the run.
Table make_layers_table(const RunSet& set, const TableOptions&) {
  Table table{"layers",
              "Layers of the network",
              {"operations of convolutions and matrix products for one image, two for a "
               "multiplication and its addition, as torch.utils.flop_counter counts them; the "
               "gradient of the images is not computed",
               "what a layer's exchange costs beside its compute: bytes of its gradient in float32 "
               "per million operations"},
              layers_columns(),
              {}};
  std::vector<std::string> done;
  for (const Run& run : set.runs) {
    const auto& layers = run.reader->layers();
    if (layers.empty() || std::ranges::find(done, run.model) != done.end()) continue;
    done.push_back(run.model);
    for (const LayerRow& layer : layers)
      table.add(layers_row(run.model, layer), run.path.string());
    table.add(layers_row(run.model, sum_of(layers)), run.path.string());
  }
  return table;
}

}  // namespace gradsync::report
