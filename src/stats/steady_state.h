#pragma once

#include <cstddef>
#include <span>

namespace gradsync {

/// Where a series of measurements becomes steady.
enum class SteadyVerdict {
  kFound,     ///< from `first` on
  kTooShort,  ///< fewer values than the test needs: nothing was looked for
  kNotSteady  ///< still changing in the second half: no beginning would help
};

struct SteadyState {
  std::size_t first = 0;  ///< of the values to keep; 0 unless something was found
  SteadyVerdict verdict = SteadyVerdict::kTooShort;
};

inline constexpr std::size_t kSteadyBatch = 5;
inline constexpr std::size_t kSteadyBatches = 10;  ///< at least so many, so 50 values

/// The rule MSER-5 (K. P. White, M. J. Cobb and S. C. Spratt, "A comparison of five steady-state
/// truncation heuristics for simulation", Winter Simulation Conference 2000): of the series of
/// batches of 5, drop the d first ones for which Σ(y − mean of the kept y)² / (number kept)² is
/// smallest. A batch is represented by its median rather than its mean, so that one interrupted
/// iteration is no change of state. A d in the second half means that the series never settles.
/// Values that are not finite count for nothing; linear in their number.
SteadyState steady_state(std::span<const double> values);

}  // namespace gradsync
