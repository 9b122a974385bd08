// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "analysis/figures/comparisons.h"
#include "analysis/read/run_set.h"
#include "base/table.h"

namespace gradsync::report {

/// What two sets of runs hold of one thing: A is the base, B what is judged.
struct Compared {
  std::string name;
  bool in_a = false, in_b = false;
  double a = kNotMeasured, b = kNotMeasured;
  bool is_rate = false;                          ///< the larger, the faster; else they are times
  TimeRatio ratio = {};                          ///< B / A
  Difference difference = Difference::kUnknown;  ///< of the times

  bool both() const { return in_a && in_b; }
  /// Whether B is slower by more than `threshold` (0.05: a time 5 % longer, or a rate 5 % less),
  /// and not by chance: may_be_slower().
  bool fails(double threshold) const;
  /// difference_text, "only in A" or "only in B".
  std::string verdict() const;
};

/// Whether B counts as slower where its ratio is beyond the threshold. An interval tells slower
/// from chance. Without one the ratio alone decides, since a gate must not let everything pass,
/// unless runs of the same work differ as much.
bool may_be_slower(Difference difference);

/// A cell of a study: the median iteration in seconds.
struct ComparedCell : Compared {
  const RunGroup *group_a = nullptr, *group_b = nullptr;  ///< null where a side has none
  std::size_t iterations_a = 0, iterations_b = 0;         ///< steady ones, of all repeats
  RunSpread spread = {};  ///< of runs of the same work in A or in B, the larger one

  const RunGroup& any() const { return group_a == nullptr ? *group_b : *group_a; }
};

/// The cells of both, in the order of A, then those that only B has. Cells are the same if all
/// that tells groups of repeats apart is equal. Of two single contenders of one experiment B is
/// compared with A whatever their settings.
std::vector<ComparedCell> compare_groups(const std::vector<RunGroup>& a,
                                         const std::vector<RunGroup>& b);

/// In what the circumstances of the cells differ, "nccl: '2.27' in A, '2.28' in B", each once.
std::vector<std::string> different_circumstances(const std::vector<ComparedCell>& cells);

/// The sizes of both sets' files of gradsync-calibrate, in the order of A, then those that only B
/// has. The time of a call is the median of all cycles and files; a file is a start
/// (ratio_over_starts). Their names: "allreduce.shm.isolated.n2.1MiB"; with the type where it is
/// not float. Compared are bus bandwidths in bytes per second.
std::vector<Compared> compare_links(const RunSet& a, const RunSet& b);

Table link_comparison_table(const std::vector<Compared>& links, double threshold);

Table comparison_table(const std::vector<ComparedCell>& cells, double threshold);

/// A JUnit file: one test a cell and a size of a collective; failed where it `fails`, skipped where
/// a side is missing.
std::string junit_text(const std::vector<ComparedCell>& cells, const std::vector<Compared>& links,
                       double threshold);

}  // namespace gradsync::report
