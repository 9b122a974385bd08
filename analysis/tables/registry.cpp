#include "analysis/tables/registry.h"

#include "analysis/tables/tables.h"

namespace gradsync::report {

namespace {

TableMaker of_runs(Table (*make)(const RunSet& set, const TableOptions& options)) {
  return [make](const RunStudy& runs, const TableOptions& options) {
    return make(runs.set(), options);
  };
}

}  // namespace

const std::vector<TableSpec>& tables() {
  static const std::vector<TableSpec> all = {
      {"modes", "loss, accuracy and iteration time, one row per run and rank",
       of_runs(make_modes_table), false},
      {"modes-paired", "each mode against the first that exchanges: ratio, interval, verdict",
       of_runs(make_modes_paired_table)},
      {"profile", "percent of a step in forward, backward, communication, optimiser, data, other",
       of_runs(make_profile_table)},
      {"split", "compute, hidden and exposed communication, other; per rank and mean over ranks",
       of_runs(make_split_table), false},
      {"batch-size", "epoch times, loss, accuracy and memory for each batch size; out of memory",
       of_runs(make_batch_size_table)},
      {"speedup", "speedup and efficiency, strong and weak, against two bases",
       of_runs(make_speedup_table)},
      {"compute-comm", "compute and communication, measured and derived from times",
       of_runs(make_compute_comm_table)},
      {"bandwidth", "bytes, algbw, busbw and utilisation of each kind of collective",
       of_runs(make_bandwidth_table)},
      {"large-batch", "loss and accuracy against batch size at one epoch, with the remedy used",
       of_runs(make_large_batch_table)},
      {"stragglers", "wait suffered and caused, per rank and host", of_runs(make_stragglers_table),
       false},
      {"traffic", "bytes of an iteration by category and rank", of_runs(make_traffic_table), false},
      {"traffic-total",
       "all bytes and calls by category, sent and received, also between iterations",
       of_runs(make_traffic_total_table), false},
      {"replicas", "whether the ranks hold the same network, and the batches and images they took",
       of_runs(make_replicas_table), false},
      {"model-fit", "the scaling model: latency, bandwidth and compute cost, with residuals",
       make_model_fit_table},
      {"prediction", "the model on cells it was not fitted to, and on larger runs",
       make_prediction_table},
      {"what-if", "the recorded buckets replayed with other caps, wire types, links or ranks",
       make_what_if_table},
      {"quantize", "int8: accuracy after each step and in each variant, bytes of the network",
       of_runs(make_quantize_table), false, true},
      {"ranges", "int8: ranges of weights and activations beside the published ones",
       of_runs(make_ranges_table), false, true},
      {"quantize-layers", "int8: scales, errors and clipping of each layer",
       of_runs(make_quantize_layers_table), false, true},
      {"quantize-speed", "int8: images per second against every fp32 path",
       of_runs(make_quantize_speed_table), false, true},
  };
  return all;
}

}  // namespace gradsync::report
