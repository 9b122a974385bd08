// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "analysis/figures/bandwidth.h"
#include "analysis/figures/utilization.h"
#include "analysis/model/study.h"
#include "analysis/model/what_if.h"
#include "base/table.h"

namespace gradsync::report {

/// Options of tables.
struct TableOptions {
  std::int64_t log_every = 20;
  std::vector<BandwidthConvention> conventions = {BandwidthConvention::kBusbw};
  double link_bytes_per_s = kNotMeasured;  ///< NaN: the plateau of calibration
  double peak_flop_per_s = kNotMeasured;   ///< of a rank; NaN: the data sheet's
  double price_per_hour = kNotMeasured;    ///< of all hosts of a run; NaN: not given
  StepEnergies step_energies = {};         ///< by Slurm's accounting; empty: not given
  std::int64_t at_epoch = 0;               ///< counted from 1; 0: the last
  double target_percent = 0;               ///< test accuracy to reach; 0: that of each run
  /// Ranks and batches of table prediction; empty: chosen from the runs.
  std::vector<std::int64_t> predict_ranks = {}, predict_batches = {};
  WhatIf what_if = {};
};

using TableMaker = std::function<Table(const RunStudy& runs, const TableOptions& options)>;

/// Whether a run of the set holds what the table is made from.
bool has_target_accuracy(const RunSet& set, const TableOptions& options);
bool has_networks(const RunSet& set, const TableOptions& options);
bool has_layers(const RunSet& set, const TableOptions& options);
bool has_experiment(const RunSet& set, const TableOptions& options);
bool has_advice(const RunSet& set, const TableOptions& options);
bool has_energy_or_price(const RunSet& set, const TableOptions& options);
bool has_hardware(const RunSet& set, const TableOptions& options);
bool has_nccl_choices(const RunSet& set, const TableOptions& options);

/// A table of the report; tables.def lists them.
struct TableSpec {
  std::string name;
  std::string description;
  bool merges = true;         ///< puts the repeats of a cell together: they must be mergeable
  bool of_quantized = false;  ///< of files of gradsync-quantize, not of training runs
  /// Whether the set holds what the table is made from, and what that is; null: any run does.
  bool (*needs)(const RunSet& set, const TableOptions& options) = nullptr;
  std::string needed = "training run";
  TableMaker make;

  /// Whether it is printed where no table is named: cost, the summary, and all of a quantized
  /// network.
  bool printed_by_default() const { return of_quantized || name == "cost" || name == "summary"; }

  /// Whether the set holds what the table is of.
  bool applies(const RunSet& set, const TableOptions& options) const {
    if (needs != nullptr && !needs(set, options)) return false;
    return of_quantized ? !set.quantized.empty() : !set.runs.empty();
  }
  /// What a set lacks to which it does not apply.
  std::string needed_text() const { return of_quantized ? "file of gradsync-quantize" : needed; }
};

/// In the order in which they are printed.
const std::vector<TableSpec>& tables();

/// The tables, a function each. Those of the scaling model take the cells of the runs, the others
/// the runs themselves.
#define GRADSYNC_TABLE(id, input, ...) \
  Table make_##id##_table(const input& runs, const TableOptions& options);
#include "analysis/tables/tables.def"
#undef GRADSYNC_TABLE

}  // namespace gradsync::report
