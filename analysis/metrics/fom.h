#pragma once

#include <string>
#include <vector>

#include "analysis/metrics/run_group.h"

namespace gradsync::report {

/// A figure of merit, for what greps the output of benchmarks (ReFrame, Ramble, JUBE).
struct Fom {
  std::string name;  ///< <metric>.<cell>
  double value;      ///< NaN: not measured
  std::string unit;
};

/// "FOM name value unit", the value with all its digits, or n/a.
std::string fom_line(const Fom& fom);

/// A cell in one word: "lenet.ddp.n2.b32", with the batch per rank; "-2", "-3", … behind it tell
/// cells apart that differ in further settings, in the order of the groups.
std::vector<std::string> cell_names(const std::vector<RunGroup>& groups);

/// Of each cell: iteration_median (ms), images_per_s (images/s, the global batch over the median),
/// exposed_median_slowest_rank (ms). Of an iteration the slowest rank counts, for each figure.
std::vector<Fom> figures_of_merit(const std::vector<RunGroup>& groups);

}  // namespace gradsync::report
