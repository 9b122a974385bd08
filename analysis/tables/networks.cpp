// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <set>

#include "analysis/figures/rank_figures.h"
#include "analysis/figures/run_group.h"
#include "analysis/figures/utilization.h"
#include "analysis/tables/columns.h"
#include "analysis/tables/tables.h"
#include "base/ranges.h"
#include "stats/bandwidth.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

/// A cell of a network and what its exchange costs.
struct NetworkRow : CellRow {
  NetworkCost cost;
  SplitFigures split;

  double communication_s() const { return split[Phase::kHidden] + split[Phase::kExposed]; }
};

TableColumns<NetworkRow> network_columns(const GroupLabels& labels) {
  using Row = NetworkRow;
  const std::string counted = "/layer/forward, /layer/backward";
  const auto time = [](const char* name, const char* head, const char* formula, const char* dataset,
                       Phase phase, int detail = 1) {
    return RowColumn<Row>(
        name, head, formula, dataset, [=](const Row& row) { return ms_cell(row.split[phase]); },
        detail);
  };
  TableColumns<Row> columns = labels.columns();
  columns.add(repeats_column());
  columns.add(
      {{"parameters", "parameters", "numbers in its parameters", "/layer/parameters",
        [](const Row& row) { return Cell::of(row.cost.parameters, 0); }},
       {"gradient_mib", "gradient MiB", "4 B x parameters / 2^20", "/layer/parameters",
        [](const Row& row) { return Cell::of(row.cost.gradient_bytes() / kMiB, 3); }},
       {"sample_gflop", "GFLOP/sample", "operations of the layers, forward and backward", counted,
        [](const Row& row) { return significant_cell(1e-9 * row.cost.sample_flop); }},
       {"bytes_per_kflop", "B/kFLOP", "4 B x parameters / operations of an iteration on one rank",
        "/layer/parameters, " + counted + ", /iteration/samples",
        [](const Row& row) { return significant_cell(1e3 * row.cost.bytes_per_flop()); }, 0},
       time("iteration_ms", "iteration ms", "mean over ranks and repeats", "/time/iteration",
            Phase::kIteration, 0),
       time("compute_ms", "compute ms", "the same", "/time/compute", Phase::kCompute),
       time("hidden_ms", "hidden ms", "the same", "/time/hidden", Phase::kHidden),
       time("exposed_ms", "exposed ms", "the same", "/time/exposed", Phase::kExposed),
       {"exposed_percent", "exposed %", "exposed / iteration", "/time/exposed, /time/iteration",
        [](const Row& row) { return Cell::of(row.split.percent(Phase::kExposed), 1); }, 0},
       {"communication_per_compute", "comm/compute", "(hidden + exposed) / compute",
        "/time/hidden, /time/exposed, /time/compute", [](const Row& row) {
          return Cell::of(row.communication_s() / row.split[Phase::kCompute], 3);
        }}});
  return columns.add(name_column());
}

}  // namespace

bool has_networks(const RunSet& set, const TableOptions&) {
  std::set<std::string> models;
  for (const Run& run : set.runs)
    if (!run.reader->layers().empty()) models.insert(run.model);
  return models.size() > 1;
}

Table make_networks_table(const RunSet& set, const TableOptions&) {
  const auto groups = group_runs(set);
  const GroupLabels labels(groups);
  GroupSplits splits(groups);
  const auto columns = network_columns(labels);
  Table table = columns.table(
      "networks", "What synchronization costs by network",
      {"B/kFLOP: bytes of float32 gradients per thousand operations (convolutions and "
       "matrix products, forward and backward) of a rank in one iteration; inversely "
       "proportional to the batch; n/a where no operation is counted",
       "on one machine, networks with the same B/kFLOP that compute at the same rate "
       "spend the same share of time on communication"});
  add_waiting_note(set, table.notes);
  for (const RunGroup& group : groups)
    if (!group.first().reader->layers().empty())
      table.add(
          columns.cells({labels.row(group), network_cost(group.first()), splits.measured(group)}),
          sources_of(group));
  return table;
}

namespace {

struct NetworkLayer {
  std::string model;
  LayerRow layer;

  double gradient_bytes() const { return 4 * static_cast<double>(layer.parameters); }
};

TableColumns<NetworkLayer> network_layer_columns() {
  using Row = NetworkLayer;
  return {{"model", "model", kLabel, &Row::model},
          {"layer", "layer", kLabel, [](const Row& row) { return row.layer.name; }, 0},
          {"operation", "operation", kLabel,
           [](const Row& row) {
             return row.layer.operation.empty() ? "not counted" : row.layer.operation;
           }},
          {"parameters", "parameters", "numbers in its parameters", "/layer/parameters",
           [](const Row& row) { return count_cell(row.layer.parameters); }, 0},
          {"gradient_mib", "gradient MiB", "4 B x parameters / 2^20", "/layer/parameters",
           [](const Row& row) { return Cell::of(row.gradient_bytes() / kMiB, 3); }},
          {"forward_mflop", "forward MFLOP", "of one image", "/layer/forward",
           [](const Row& row) { return Cell::of(1e-6 * row.layer.forward_flop, 3); }, 0},
          {"backward_mflop", "backward MFLOP", "of one image", "/layer/backward",
           [](const Row& row) { return Cell::of(1e-6 * row.layer.backward_flop, 3); }, 0},
          {"bytes_per_mflop", "B/MFLOP", "4 B x parameters / (forward + backward)",
           "/layer/parameters, /layer/forward, /layer/backward", [](const Row& row) {
             const double flop = row.layer.forward_flop + row.layer.backward_flop;
             return Cell::of(row.gradient_bytes() / (1e-6 * positive(flop)), 1);
           }}};
}

LayerRow sum_of(const std::vector<LayerRow>& layers) {
  LayerRow all{"all", "sum", 0, sum(each(layers, &LayerRow::forward_flop)),
               sum(each(layers, &LayerRow::backward_flop))};
  for (const LayerRow& layer : layers)
    all.parameters += layer.parameters;
  return all;
}

}  // namespace

bool has_layers(const RunSet& set, const TableOptions&) {
  return std::ranges::any_of(set.runs,
                             [](const Run& run) { return !run.reader->layers().empty(); });
}

/// Each network once.
Table make_layers_table(const RunSet& set, const TableOptions&) {
  const auto columns = network_layer_columns();
  Table table = columns.table(
      "layers", "Layers of the network",
      {"operations of convolutions and matrix products for one image, two for a "
       "multiplication and its addition, as torch.utils.flop_counter counts them; the "
       "gradient of the images is not computed",
       "what a layer's exchange costs beside its compute: bytes of its gradient in float32 "
       "per million operations"});
  std::set<std::string> done;
  const auto runs = each(set.runs, [](const Run& run) { return &run; });
  for (const Run& run : set.runs) {
    const auto& layers = run.reader->layers();
    const std::string network = network_text(run, runs);
    if (layers.empty() || !done.insert(network).second) continue;
    for (const LayerRow& layer : layers)
      table.add(columns.cells({network, layer}), run.path.string());
    table.add(columns.cells({network, sum_of(layers)}), run.path.string());
  }
  return table;
}

}  // namespace gradsync::report
