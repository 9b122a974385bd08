#pragma once

#include <string>
#include <vector>

#include "analysis/figures/run_group.h"

namespace gradsync::report {

/// A figure of merit, for what greps the output of benchmarks (ReFrame, Ramble, JUBE).
struct Fom {
  std::string name;  ///< <metric>.<cell>
  double value;      ///< NaN: not measured
  std::string unit;
};

/// "FOM name value unit", the value with all its digits, or n/a.
std::string fom_line(const Fom& fom);

/// A cell in one word: "lenet.ddp.n2.b32", with the batch per rank, or with the schedule of its
/// batches, "lenet.ddp.n2.batch-schedule=0:32,2:128"; cells that differ in further settings have
/// those behind it: "lenet.ddp.n2.b32.transport=shm".
std::vector<std::string> cell_names(const std::vector<const RunGroup*>& groups);

/// Figures of each cell: iteration_median (ms), images_per_s (run_group.h),
/// exposed_median_slowest_rank (ms). Of an iteration the slowest rank counts, for each figure.
std::vector<Fom> figures_of_merit(const std::vector<RunGroup>& groups);

}  // namespace gradsync::report
