// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "stats/statistics.h"

namespace gradsync {

inline constexpr double kConfidence = 0.95;

/// A figure with the interval that holds the true one with `kConfidence`, were the values
/// independent; NaN ends where the sample is too small to give them.
struct Estimate {
  double value = Statistics::kNone;
  double low = Statistics::kNone, high = Statistics::kNone;
  std::size_t count = 0;  ///< finite values it rests on

  bool has_interval() const { return low <= high; }
  /// Whether `number` lies in the interval; false where there is none.
  bool holds(double number) const { return low <= number && number <= high; }
};

/// The median with its distribution-free interval from order statistics: the ranks l and n + 1 − l
/// with P(x(l) <= median <= x(n + 1 − l)) >= kConfidence under Binomial(n, 1/2), l as large as it
/// can be (W. J. Conover, "Practical Nonparametric Statistics", 1999, section 3.2). NaN ends below
/// 6 values, where even the whole range holds the median with less than 0.95.
Estimate median_estimate(std::span<const double> values);

// For a claim that rests on several `comparisons` at once the intervals below are wider, so that
// all of them hold together with kConfidence (C. E. Bonferroni): each holds with 1 − (1 −
// kConfidence) / comparisons.

/// The pseudomedian of differences within pairs (J. L. Hodges and E. L. Lehmann, 1963: the median
/// of all Walsh averages) with the interval of Wilcoxon's signed-rank test (M. Hollander, D. A.
/// Wolfe and E. Chicken, "Nonparametric Statistical Methods", 2014, 3.2 and 3.3): exact up to
/// kExactPairs pairs, by the normal approximation above. NaN ends below 6 pairs (of one
/// comparison).
inline constexpr std::size_t kExactPairs = 200;
Estimate paired_estimate(std::span<const double> differences, std::size_t comparisons = 1);

/// exp of the paired_estimate of ln(above / below), of times that were measured in turn. Both have
/// as many values.
Estimate paired_ratio(std::span<const double> above, std::span<const double> below,
                      std::size_t comparisons = 1);

/// The estimate of e^x from that of x: of a ratio from that of its logarithm.
Estimate exponential(const Estimate& logarithm);

/// The farther end of the interval from the value, over the value; NaN without an interval.
double relative_half_width(const Estimate& estimate);

/// Whether an experiment that ends when its intervals are narrow looks at them after so many
/// rounds: after 16 and its doubles. Few looks keep the coverage that an interval states
/// (P. Armitage, C. K. McPherson and B. C. Rowe, "Repeated significance tests on accumulating
/// data", 1969).
bool looks_after(std::size_t rounds);

/// The mean with Student's interval: mean ± t(n − 1) · deviation / √n. For few values that scatter
/// about their mean as errors do, such as the accuracies of some seeds. NaN ends below 2 values.
Estimate mean_estimate(std::span<const double> values, std::size_t comparisons = 1);

/// mean(one) − mean(other) with the interval of B. L. Welch, "The generalization of Student's
/// problem" (Biometrika 34, 1947), which does not take the two for equally scattered; degrees of
/// freedom by Welch and Satterthwaite. `count` is that of the smaller sample; NaN ends below 2
/// values in it.
Estimate difference_estimate(std::span<const double> one, std::span<const double> other,
                             std::size_t comparisons = 1);

/// Draws that are the same on every machine (std::uniform_int_distribution is not).
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : random_(seed) {}
  /// Uniform in 0 … n − 1, but for a part in 2^64/n; requires n > 0.
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  /// Puts them in an order that is drawn; each is as likely.
  template <typename Value>
  void shuffle(std::vector<Value>& values) {
    for (std::size_t left = values.size(); left > 1; --left)
      std::swap(values[left - 1], values[below(left)]);
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace gradsync
