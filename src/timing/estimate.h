#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "timing/statistics.h"

namespace gradsync {

inline constexpr double kConfidence = 0.95;

/// A figure with the interval that holds the true one with `kConfidence`; NaN ends where the sample
/// is too small to give them.
struct Estimate {
  double value = Statistics::kNone;
  double low = Statistics::kNone, high = Statistics::kNone;
  std::size_t count = 0;  ///< finite values it rests on
};

/// The median with its distribution-free interval from order statistics: the ranks l and u with
/// P(x(l) <= median <= x(u)) >= kConfidence under Binomial(n, 1/2) (W. J. Conover, "Practical
/// Nonparametric Statistics", 1999, section 3.2). NaN ends below 6 values.
Estimate median_estimate(std::span<const double> values);

/// median(above) / median(below), with the percentile bootstrap's interval (B. Efron and R.
/// Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13; 2,000 resamples of each
/// sample). The same seed gives the same interval on every machine.
Estimate ratio_estimate(std::span<const double> above, std::span<const double> below,
                        std::uint64_t seed);

}  // namespace gradsync
