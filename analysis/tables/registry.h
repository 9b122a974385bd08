#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "analysis/metrics/bandwidth.h"
#include "analysis/model/cell_facts.h"
#include "analysis/model/what_if.h"
#include "support/table.h"

namespace gradsync::report {

/// Options of tables.
struct TableOptions {
  std::int64_t log_every = 20;
  std::vector<BandwidthConvention> conventions = {BandwidthConvention::kBusbw};
  double link_bytes_per_s = kNotMeasured;  ///< NaN: the plateau of calibration
  std::int64_t at_epoch = 0;               ///< counted from 1; 0: the last
  std::uint64_t seed = 1;                  ///< of bootstrap resamples
  /// Of table prediction; empty: chosen from the runs.
  std::vector<std::int64_t> predict_ranks = {}, predict_batches = {};
  WhatIf what_if = {};
};

using TableMaker = std::function<Table(const RunStudy& runs, const TableOptions& options)>;

/// Whether a run of the set had one.
bool has_target_accuracy(const RunSet& set);

/// A table of the report; tables.def lists them.
struct TableSpec {
  std::string name;
  std::string description;
  bool merges = true;         ///< puts the repeats of a cell together: they must be mergeable
  bool of_quantized = false;  ///< of files of gradsync-quantize, not of training runs
  bool of_targets = false;    ///< of runs with --target-accuracy
  TableMaker make;

  /// Where no table is named: the summary, and all of a quantized network.
  bool printed_by_default() const { return of_quantized || name == "summary"; }

  /// Whether the set holds what the table is of.
  bool applies(const RunSet& set) const {
    if (of_targets) return has_target_accuracy(set);
    return of_quantized ? !set.quantized.empty() : !set.runs.empty();
  }
};

/// In the order in which they are printed.
const std::vector<TableSpec>& tables();

}  // namespace gradsync::report
