// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace gradsync {

/// A number that was not measured, or that the data cannot give.
inline constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

/// A rate or a time that cannot be 0; else not measured.
inline double positive(double value) {
  return value > 0 ? value : kNotMeasured;
}

/// What a sample of numbers says. Every program takes its statistics from here.
/// Only finite values count; the others (NaN: not measured) are counted in `left_out`.
/// A figure that the sample cannot give is NaN: all of them for count 0, the deviation and the
/// variation for count 1, the variation for a mean that is not above 0.
struct Statistics {
  static constexpr double kNone = kNotMeasured;

  std::size_t count = 0;     ///< finite values
  std::size_t left_out = 0;  ///< NaN and infinities
  double mean = kNone;
  double deviation = kNone;  ///< sample standard deviation, n − 1 below the sum
  double variation = kNone;  ///< coefficient of variation: deviation / mean
  double minimum = kNone;
  double median = kNone;
  double p95 = kNone;
  double p99 = kNone;
  double maximum = kNone;
};

/// Costs one sort of a copy of the finite values.
Statistics statistics(std::span<const double> values);

/// The finite values in order.
std::vector<double> sorted_finite(std::span<const double> values);

/// Sum of the finite values; NaN if there are none.
double sum(std::span<const double> values);

/// Mean of the finite values; NaN if there are none. No copy.
double mean(std::span<const double> values);

/// Quantile of the finite values by linear interpolation between order statistics, type 7 of
/// R. J. Hyndman and Y. Fan, "Sample Quantiles in Statistical Packages" (1996), the default of R
/// and NumPy: with x sorted from 0 and h = (n − 1)p, x[⌊h⌋] + (h − ⌊h⌋)(x[⌊h⌋ + 1] − x[⌊h⌋]). NaN
/// if there are none. Requires 0 <= p <= 1 (Error kInternal otherwise).
double quantile(std::span<const double> values, double p);

/// quantile(values, 0.5): the middle value, or the mean of the two middle ones.
double median(std::span<const double> values);

/// The median of the finite values within `window` / 2 places of each value; NaN where there are
/// none. At the ends the window is cut off, not filled. `window` is odd.
std::vector<double> moving_median(const std::vector<double>& values, std::size_t window);

/// Median of the last values, at most `kKept`: the same work and memory for every one.
class RecentMedian {
 public:
  static constexpr std::size_t kKept = 63;

  void add(double value) { values_[static_cast<std::size_t>(count_++) % kKept] = value; }
  /// Values added so far.
  std::int64_t count() const { return count_; }
  /// The upper one of the two in the middle. Requires count() > 0.
  double value() const {
    auto sorted = values_;
    const auto end =
        sorted.begin() + static_cast<std::ptrdiff_t>(std::min<std::int64_t>(count_, kKept));
    const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
    std::nth_element(sorted.begin(), middle, end);
    return *middle;
  }

 private:
  std::array<double, kKept> values_{};
  std::int64_t count_ = 0;
};

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
