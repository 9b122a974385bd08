#include <set>

#include "analysis/figures/split_figures.h"
#include "analysis/figures/utilization.h"
#include "analysis/tables/group_cells.h"
#include "analysis/tables/run_cells.h"
#include "analysis/tables/tables.h"
#include "stats/bandwidth.h"

namespace gradsync::report {

namespace {

std::vector<Column> networks_columns(const GroupLabels& labels) {
  std::vector<Column> result = labels.columns();
  const std::string counted = "/layer/forward, /layer/backward";
  const std::vector<Column> rest = {
      repeats_column(),
      {"parameters", "parameters", false, "numbers in its parameters", "/layer/parameters"},
      {"gradient_mib", "gradient MiB", false, "4 B x parameters / 2^20", "/layer/parameters"},
      {"sample_gflop", "GFLOP/sample", false, "operations of the layers, forward and backward",
       counted},
      {"bytes_per_kflop", "B/kFLOP", false,
       "4 B x parameters / operations of an iteration on one rank",
       "/layer/parameters, " + counted + ", /iteration/samples"},
      {"iteration_ms", "iteration ms", false, "mean over ranks and repeats", "/time/iteration"},
      {"compute_ms", "compute ms", false, "the same", "/time/compute"},
      {"hidden_ms", "hidden ms", false, "the same", "/time/hidden", 1},
      {"exposed_ms", "exposed ms", false, "the same", "/time/exposed"},
      {"exposed_percent", "exposed %", false, "exposed / iteration",
       "/time/exposed, /time/iteration"},
      {"communication_per_compute", "comm/compute", false, "(hidden + exposed) / compute",
       "/time/hidden, /time/exposed, /time/compute", 1},
      group_name_column()};
  result.insert(result.end(), rest.begin(), rest.end());
  keep(result, {"bytes_per_kflop", "iteration_ms", "exposed_percent"});
  return result;
}

std::vector<Cell> networks_row(const GroupLabels& labels, const RunGroup& group,
                               const SplitFigures& split) {
  const NetworkCost cost = network_cost(group.first());
  const double hidden_s = split[Phase::kHidden], exposed_s = split[Phase::kExposed];
  std::vector<Cell> cells = labels.cells(group);
  const std::vector<Cell> rest = {repeats_cell(group),
                                  Cell::of(cost.parameters, 0),
                                  Cell::of(cost.gradient_bytes() / kMiB, 3),
                                  significant_cell(1e-9 * cost.sample_flop),
                                  significant_cell(1e3 * cost.bytes_per_flop()),
                                  Cell::of(1e3 * split[Phase::kIteration], 3),
                                  Cell::of(1e3 * split[Phase::kCompute], 3),
                                  Cell::of(1e3 * hidden_s, 3),
                                  Cell::of(1e3 * exposed_s, 3),
                                  Cell::of(split.percent(Phase::kExposed), 1),
                                  Cell::of((hidden_s + exposed_s) / split[Phase::kCompute], 3),
                                  group_name_cell(group)};
  cells.insert(cells.end(), rest.begin(), rest.end());
  return cells;
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
  Table table{"networks",
              "What synchronization costs by network",
              {"B/kFLOP: bytes of float32 gradients per thousand operations (convolutions and "
               "matrix products, forward and backward) of a rank in one iteration; inversely "
               "proportional to the batch; n/a where no operation is counted",
               "on one machine, networks with the same B/kFLOP that compute at the same rate "
               "spend the same share of time on communication"},
              networks_columns(labels),
              {}};
  add_waiting_note(set, table.notes);
  for (const RunGroup& group : groups)
    if (!group.first().reader->layers().empty())
      table.add(networks_row(labels, group, splits.measured(group)), sources_of(group));
  return table;
}

}  // namespace gradsync::report
