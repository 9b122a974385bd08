// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "analysis/figures/comparisons.h"
#include "analysis/read/run_set.h"
#include "base/table.h"

namespace gradsync::report {

/// One cell of a study, in two sets of runs: A is the base, B what is judged.
struct ComparedCell {
  std::string name;             ///< cell_names
  const RunGroup* a = nullptr;  ///< null where only B has it
  const RunGroup* b = nullptr;
  Estimate time_a, time_b;  ///< median iteration time in seconds
  TimeRatio ratio;          ///< iteration time of B / that of A
  RunSpread spread;         ///< of runs of the same work in A or in B, the larger one

  bool both() const { return a != nullptr && b != nullptr; }
  /// Whether B is slower by more than `threshold` (0.05: 5 %), and not by chance: see
  /// may_be_slower().
  bool fails(double threshold) const;
  Difference difference() const { return difference_of(ratio, spread); }
  /// difference_text of the ratio, "only in A" or "only in B".
  std::string verdict() const;
};

/// Whether B counts as slower where its ratio is beyond the threshold. An interval tells slower
/// from chance. Without one the ratio alone decides, since a gate must not let everything pass,
/// unless runs of the same work differ as much.
bool may_be_slower(Difference difference);

/// The cells of both, in the order of A, then those that only B has. Cells are the same if all
/// that tells groups of repeats apart is equal. Of two single contenders of one experiment B is
/// compared with A whatever their settings.
std::vector<ComparedCell> compare_groups(const std::vector<RunGroup>& a,
                                         const std::vector<RunGroup>& b);

/// In what the circumstances of the cells differ, "nccl: '2.27' in A, '2.28' in B", each once.
std::vector<std::string> different_circumstances(const std::vector<ComparedCell>& cells);

/// One size of one calibrated collective, in two sets of files of gradsync-calibrate.
struct ComparedLink {
  std::string name;  ///< "allreduce.shm.isolated.n2.1MiB"; with the type where it is not float
  double busbw_a = kNotMeasured, busbw_b = kNotMeasured;  ///< bytes per second; NaN: not there
  TimeRatio ratio;                                        ///< busbw of B / busbw of A
  Difference difference = Difference::kUnknown;           ///< of the times

  bool both() const { return busbw_a > 0 && busbw_b > 0; }
  /// Slower by more than `threshold` (0.05: 5 % less busbw), and not by chance: may_be_slower().
  bool fails(double threshold) const;
  /// difference_text of the times, "only in A" or "only in B".
  std::string verdict() const;
};

/// The sizes of both sets' files of gradsync-calibrate, in the order of A, then those that only B
/// has. The time of a call is the median of all cycles and files; a file is a start
/// (ratio_over_starts).
std::vector<ComparedLink> compare_links(const RunSet& a, const RunSet& b);

Table link_comparison_table(const std::vector<ComparedLink>& links, double threshold);

Table comparison_table(const std::vector<ComparedCell>& cells, double threshold);

/// A JUnit file: one test a cell and a size of a collective; failed where it `fails`, skipped where
/// a side is missing.
std::string junit_text(const std::vector<ComparedCell>& cells,
                       const std::vector<ComparedLink>& links, double threshold);

}  // namespace gradsync::report
