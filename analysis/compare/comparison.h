#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/metrics/comparisons.h"
#include "analysis/metrics/run_group.h"
#include "support/table.h"

namespace gradsync::report {

/// One cell of a study, in two sets of runs: A is the base, B what is judged.
struct ComparedCell {
  std::string name;             ///< cell_names
  const RunGroup* a = nullptr;  ///< null where only B has it
  const RunGroup* b = nullptr;
  Estimate time_a, time_b;  ///< median iteration time in seconds
  TimeRatio time;           ///< B / A

  bool both() const { return a != nullptr && b != nullptr; }
  /// Slower by more than `threshold` (0.05: 5 %), and not by chance: the interval leaves out 1.
  bool fails(double threshold) const;
  /// verdict of the ratio, "only in A" or "only in B".
  std::string verdict() const;
};

/// The cells of both, in the order of A, then those that only B has. Cells are the same if all
/// that tells groups of repeats apart is equal.
std::vector<ComparedCell> compare_groups(const std::vector<RunGroup>& a,
                                         const std::vector<RunGroup>& b, std::uint64_t seed);

/// In what the circumstances of the cells differ, "nccl: '2.27' in A, '2.28' in B", each once.
std::vector<std::string> different_circumstances(const std::vector<ComparedCell>& cells);

Table comparison_table(const std::vector<ComparedCell>& cells, double threshold,
                       std::uint64_t seed);

/// A JUnit file: one test a cell; failed where ComparedCell::fails, skipped where a side or an
/// interval is missing.
std::string junit_text(const std::vector<ComparedCell>& cells, double threshold);

}  // namespace gradsync::report
