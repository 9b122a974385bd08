// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

namespace gradsync {

/// A stretch of time [begin_s, end_s), in seconds on any one clock.
struct Interval {
  double begin_s = 0;
  double end_s = 0;
  double length_s() const { return end_s - begin_s; }
  bool operator==(const Interval&) const = default;
};

/// The union of some intervals, kept as disjoint, sorted, non-empty pieces.
class IntervalSet {
 public:
  IntervalSet() = default;
  /// The union of `intervals`, in any order, overlapping or not; empty ones vanish.
  /// Throws Error kInternal for a bound that is not finite or an end before its begin.
  explicit IntervalSet(std::vector<Interval> intervals);

  const std::vector<Interval>& pieces() const { return pieces_; }
  bool empty() const { return pieces_.empty(); }

  /// Total length in seconds.
  double measure_s() const;

  /// What lies in both.
  IntervalSet intersection(const IntervalSet& other) const;
  /// What lies in this one and not in `other`.
  IntervalSet difference(const IntervalSet& other) const;
  /// What lies in either.
  IntervalSet united(const IntervalSet& other) const;

 private:
  std::vector<Interval> pieces_;
};

/// Where the time of one iteration of one rank went, in seconds.
/// compute_s + exposed_s + wait_s + other_s = the iteration; comm_busy_s = hidden_s + exposed_s.
struct IterationSplit {
  double compute_s = 0;    ///< |C|
  double comm_busy_s = 0;  ///< |K|
  double hidden_s = 0;     ///< |C ∩ K|
  double exposed_s = 0;    ///< |K \ C|
  double wait_s = 0;       ///< |S \ (C ∪ K)|
  double other_s = 0;      ///< W − |C ∪ K ∪ S|
};

/// Splits an iteration of `iteration_s` seconds that begins at 0, where C is the union of
/// `compute`, K that of `communication` and S that of `straggler_wait`, all clipped to
/// [0, iteration_s]. Cost n log n.
/// Throws Error kInternal for an interval that is not finite or ends before it begins, and for an
/// iteration that is negative or not finite.
IterationSplit split_iteration(const std::vector<Interval>& compute,
                               const std::vector<Interval>& communication,
                               const std::vector<Interval>& straggler_wait, double iteration_s);

}  // namespace gradsync
