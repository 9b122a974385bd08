#pragma once

#include "analysis/tables/registry.h"

/// One function a table, each in the file of its name; registry.cpp lists them. Those of the
/// scaling model take what it knows of the runs, the others the runs themselves.
namespace gradsync::report {

Table make_modes_table(const RunSet& set, const TableOptions& options);
Table make_modes_paired_table(const RunSet& set, const TableOptions& options);
Table make_profile_table(const RunSet& set, const TableOptions& options);
Table make_split_table(const RunSet& set, const TableOptions& options);
Table make_batch_size_table(const RunSet& set, const TableOptions& options);
Table make_speedup_table(const RunSet& set, const TableOptions& options);
Table make_compute_comm_table(const RunSet& set, const TableOptions& options);
Table make_bandwidth_table(const RunSet& set, const TableOptions& options);
Table make_large_batch_table(const RunSet& set, const TableOptions& options);
Table make_stragglers_table(const RunSet& set, const TableOptions& options);
Table make_traffic_table(const RunSet& set, const TableOptions& options);
Table make_traffic_total_table(const RunSet& set, const TableOptions& options);
Table make_replicas_table(const RunSet& set, const TableOptions& options);
Table make_quantize_table(const RunSet& set, const TableOptions& options);
Table make_ranges_table(const RunSet& set, const TableOptions& options);
Table make_quantize_layers_table(const RunSet& set, const TableOptions& options);
Table make_quantize_speed_table(const RunSet& set, const TableOptions& options);
Table make_model_fit_table(const RunStudy& runs, const TableOptions& options);
Table make_prediction_table(const RunStudy& runs, const TableOptions& options);
Table make_what_if_table(const RunStudy& runs, const TableOptions& options);

}  // namespace gradsync::report
