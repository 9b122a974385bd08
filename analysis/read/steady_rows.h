#pragma once

#include <cstddef>
#include <vector>

#include "record/reader.h"
#include "stats/statistics.h"

namespace gradsync::report {

/// Which iterations of a run figures are made from. Left out are, by rule, the first one (but for
/// the only one of traces, before which their profiler warmed up) and all
/// that the run flags as warm-up, and then what steady_state (MSER-5) finds of the rest: the series
/// is the iteration time of the slowest rank.
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

}  // namespace gradsync::report
