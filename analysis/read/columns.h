// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "record/reader.h"
#include "stats/statistics.h"

/// The iterations of a run that count, and sums and columns over its matrices, of which only a
/// block of rows is in memory.
namespace gradsync::report {

/// Which iterations of a run figures are made from. Left out are, by rule, the first one (but for
/// the only one of traces, before which their profiler warmed up) and all
/// that the run flags as warm-up, and then what steady_state (MSER-5) finds of the rest: the series
/// is the iteration time of the slowest rank. By rule, too, the last ones of a run that does not
/// exchange in each iteration, so that the others are whole periods (exchange_period).
struct SteadyRows {
  std::vector<bool> warmup;  ///< a row each: left out by rule
  std::size_t first = 0;     ///< rows before it are left out, by rule or by the test
  std::size_t by_rule = 0;   ///< how many
  std::size_t by_test = 0;   ///< how many more
  SteadyVerdict verdict = SteadyVerdict::kTooShort;
  std::size_t missing = 0;                 ///< iteration times that were not measured
  std::vector<std::size_t> missing_ranks;  ///< of which ranks
  /// With times; all where none has one.
  std::vector<std::size_t> ranks;

  bool keeps(std::size_t row) const { return row >= first && !warmup[row]; }
  std::size_t kept() const { return warmup.size() - by_rule - by_test; }
};

SteadyRows steady_rows(RunReader& run);

/// Iterations of a run of which one exchanges: --local-steps of local-sgd, else 1.
std::size_t exchange_period(const RunReader& run);

/// Means over each `period` of the values, in order; what is beyond the last whole one is left out.
std::vector<double> period_means(std::span<const double> values, std::size_t period);

/// Rows `first` to `first + count` of something that a run holds for each iteration and rank.
using MatrixBlocks = std::function<Matrix(RunReader& run, std::size_t first, std::size_t count)>;

MatrixBlocks phase_blocks(Phase phase);
MatrixBlocks loss_blocks();

/// Calls `visit(first, count)` for blocks that cover all iterations in order, each so long that
/// `columns` numbers a row stay near 16 MiB.
void for_each_block(const RunReader& run, std::size_t columns,
                    const std::function<void(std::size_t first, std::size_t count)>& visit);

/// Calls `visit(row, values)` for each iteration, with one value a rank.
void for_each_row(
    RunReader& run, const MatrixBlocks& blocks,
    const std::function<void(std::size_t row, std::span<const double> values)>& visit);

/// The mean of each rank's finite values over the steady iterations; NaN where it has none.
std::vector<double> rank_means(RunReader& run, const SteadyRows& steady,
                               const MatrixBlocks& blocks);

/// The values of the steady iterations with a row a rank, so that those of one rank are neighbors.
Matrix steady_by_rank(RunReader& run, const SteadyRows& steady, const MatrixBlocks& blocks);

/// The slowest rank of each iteration; NaN where no rank has a value.
std::vector<double> slowest_rank(RunReader& run, const MatrixBlocks& blocks);
inline std::vector<double> slowest_rank(RunReader& run, Phase phase) {
  return slowest_rank(run, phase_blocks(phase));
}

/// Mean over the ranks of each iteration; NaN where no rank has a value.
std::vector<double> mean_over_ranks(RunReader& run, const MatrixBlocks& blocks);
inline std::vector<double> mean_over_ranks(RunReader& run, Phase phase) {
  return mean_over_ranks(run, phase_blocks(phase));
}

}  // namespace gradsync::report
