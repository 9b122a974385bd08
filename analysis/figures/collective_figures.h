#pragma once

#include <cstdint>
#include <vector>

#include "analysis/figures/run_group.h"

namespace gradsync::report {

/// How long data of a collective moved on one rank: from the arrival of the last rank to the end;
/// where that was not recorded (schema 1), all the rank was in it.
double moving_s(const BucketTimes& times);

/// Of one collective: the shortest of that over the ranks, which leaves waiting out in either case.
/// NaN where a rank did not measure it.
double shortest_moving_s(const IterationRow& row, std::size_t bucket);

/// The collectives of one kind in an iteration of a group's runs.
struct CollectiveFigures {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::vector<std::int64_t> sizes;  ///< payload bytes of one rank, of the last sampled iteration
  /// Of each sampled iteration: the sum of the transfer times of its collectives of this kind.
  std::vector<double> transfer_s;
  std::size_t steady_iterations = 0;  ///< that the sample was taken from

  /// Σ sizes.
  double payload_bytes() const;
};

/// One entry a kind that moved bytes, in the order of CollectiveKind. Blocks of consecutive steady
/// iterations, evenly spaced over each run, are read: at most 200 iterations a run.
///
/// Transfer time of one collective: for all-reduce and all-gather, where no rank can leave before
/// all have come, the shortest duration over the ranks, which leaves waiting out (duration =
/// transfer + wait, docs/numbers.md). For those with a root, ranks may leave early: from the moment
/// the last rank came to the moment the last one left, on rank 0's clock.
std::vector<CollectiveFigures> collective_figures(const RunGroup& group);

/// Seconds of collective number `bucket` of an iteration; NaN where a rank did not measure it.
double transfer_s(const IterationRow& row, std::size_t bucket);

}  // namespace gradsync::report
