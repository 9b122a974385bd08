// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
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
  Estimate ratio;           ///< median iteration time of B / that of A

  bool both() const { return a != nullptr && b != nullptr; }
  /// Whether B is slower by more than `threshold` (0.05: 5 %), and not by chance: the interval
  /// leaves out 1.
  bool fails(double threshold) const;
  /// difference_text of the ratio, "only in A" or "only in B".
  std::string verdict() const;
};

/// The cells of both, in the order of A, then those that only B has. Cells are the same if all
/// that tells groups of repeats apart is equal.
std::vector<ComparedCell> compare_groups(const std::vector<RunGroup>& a,
                                         const std::vector<RunGroup>& b, std::uint64_t seed);

/// In what the circumstances of the cells differ, "nccl: '2.27' in A, '2.28' in B", each once.
std::vector<std::string> different_circumstances(const std::vector<ComparedCell>& cells);

/// One size of one calibrated collective, in two sets of files of gradsync-calibrate.
struct ComparedLink {
  std::string name;  ///< "allreduce.shm.isolated.n2.1MiB"; with the type where it is not float
  Estimate busbw_a, busbw_b;  ///< bytes per second; NaN where a side lacks it
  Estimate ratio;             ///< busbw of B / busbw of A

  bool both() const { return busbw_a.count > 0 && busbw_b.count > 0; }
  /// Slower by more than `threshold` (0.05: 5 % less busbw), and not by chance.
  bool fails(double threshold) const;
  /// difference_text of the times, "only in A" or "only in B".
  std::string verdict() const;
};

/// The sizes of both sets' files of gradsync-calibrate, in the order of A, then those that only B
/// has. The time of a call is the median of all cycles and repeats. From 6 of them on intervals are
/// those of iterations: what differs from cycle to cycle is in them. Below that they come from the
/// deviation of the calls: ±1.96 · 1.2533 · s/√n of a median; none without 6 calls on each side.
std::vector<ComparedLink> compare_links(const RunSet& a, const RunSet& b, std::uint64_t seed);

Table link_comparison_table(const std::vector<ComparedLink>& links, double threshold,
                            std::uint64_t seed);

Table comparison_table(const std::vector<ComparedCell>& cells, double threshold,
                       std::uint64_t seed);

/// A JUnit file: one test a cell and a size of a collective; failed where it `fails`, skipped where
/// a side or an interval is missing.
std::string junit_text(const std::vector<ComparedCell>& cells,
                       const std::vector<ComparedLink>& links, double threshold);

}  // namespace gradsync::report
