// SPDX-License-Identifier: BSD-3-Clause
#include "stats/estimate.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>

namespace gradsync {

namespace {

constexpr std::size_t kLeastForInterval = 6;

/// The largest l with P(X < l) <= (1 − kConfidence)/2 for X ~ Binomial(n, 1/2).
std::size_t lower_rank(std::size_t n) {
  const boost::math::binomial_distribution<double> heads(static_cast<double>(n), 0.5);
  std::size_t low = 0, high = n / 2;  // P(X < 0) = 0 fits; P(X < n/2 + 1) > 1/2 does not
  while (low < high) {
    const std::size_t l = (low + high + 1) / 2;
    if (boost::math::cdf(heads, static_cast<double>(l - 1)) <= (1 - kConfidence) / 2)
      low = l;
    else
      high = l - 1;
  }
  return low;
}

/// The chance of either side that an interval leaves out.
double tail(std::size_t comparisons) {
  return (1 - kConfidence) / 2 / static_cast<double>(comparisons);
}

/// value ± t · error, t of Student's distribution.
Estimate around(double value, double error, double degrees, std::size_t count,
                std::size_t comparisons) {
  Estimate estimate{value, value, value, count};
  if (error == 0) return estimate;
  const boost::math::students_t_distribution<double> student(degrees);
  const double reach = boost::math::quantile(student, 1 - tail(comparisons)) * error;
  estimate.low -= reach;
  estimate.high += reach;
  return estimate;
}

/// The square of the standard error of a mean.
double squared_error(const Statistics& sample) {
  return sample.deviation * sample.deviation / static_cast<double>(sample.count);
}

}  // namespace

Estimate median_estimate(std::span<const double> values) {
  const std::vector<double> sorted = sorted_finite(values);
  const std::size_t n = sorted.size();
  Estimate estimate{median(sorted), Statistics::kNone, Statistics::kNone, n};
  if (n < kLeastForInterval) return estimate;
  const std::size_t l = lower_rank(n);
  estimate.low = sorted[l - 1];
  estimate.high = sorted[n - l];
  return estimate;
}

namespace {

/// The largest c with P(T < c) <= `tail`, T the signed-rank statistic of n pairs without a
/// difference: the sum of a random subset of 1 … n.
std::size_t lower_walsh(std::size_t n, double tail) {
  const std::size_t sums = n * (n + 1) / 2;
  if (n > kExactPairs) {
    const auto pairs = static_cast<double>(n);
    const double middle = pairs * (pairs + 1) / 4;
    const double deviation = std::sqrt(middle * (2 * pairs + 1) / 6);
    const boost::math::normal_distribution<double> normal;
    return static_cast<std::size_t>(
        std::max(0.0, std::floor(middle + boost::math::quantile(normal, tail) * deviation)));
  }
  std::vector<double> chance(sums + 1, 0);
  chance[0] = 1;
  for (std::size_t rank = 1; rank <= n; ++rank)
    for (std::size_t sum = sums + 1; sum-- > 0;)
      chance[sum] = (chance[sum] + (sum >= rank ? chance[sum - rank] : 0)) / 2;
  std::size_t c = 0;
  for (double below = chance[0]; below <= tail; below += chance[++c])
    if (c == sums) break;
  return c;
}

}  // namespace

Estimate paired_estimate(std::span<const double> differences, std::size_t comparisons) {
  const std::vector<double> sorted = sorted_finite(differences);
  const std::size_t n = sorted.size();
  std::vector<double> walsh;
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = i; j < n; ++j)
      walsh.push_back((sorted[i] + sorted[j]) / 2);
  std::ranges::sort(walsh);
  Estimate estimate{median(walsh), Statistics::kNone, Statistics::kNone, n};
  const std::size_t c = lower_walsh(n, tail(comparisons));
  if (c == 0) return estimate;
  estimate.low = walsh[c - 1];
  estimate.high = walsh[walsh.size() - c];
  return estimate;
}

double relative_half_width(const Estimate& estimate) {
  if (!estimate.has_interval()) return Statistics::kNone;
  return std::max(estimate.high - estimate.value, estimate.value - estimate.low) / estimate.value;
}

bool looks_after(std::size_t rounds) {
  constexpr std::size_t kFirstLook = 16;
  return rounds >= kFirstLook && std::has_single_bit(rounds);
}

Estimate paired_ratio(std::span<const double> above, std::span<const double> below,
                      std::size_t comparisons) {
  std::vector<double> logarithms;
  for (std::size_t i = 0; i < above.size(); ++i)
    logarithms.push_back(std::log(above[i] / below[i]));
  return exponential(paired_estimate(logarithms, comparisons));
}

Estimate mean_estimate(std::span<const double> values, std::size_t comparisons) {
  const Statistics sample = statistics(values);
  if (sample.count < 2) return {sample.mean, Statistics::kNone, Statistics::kNone, sample.count};
  return around(sample.mean, std::sqrt(squared_error(sample)),
                static_cast<double>(sample.count - 1), sample.count, comparisons);
}

Estimate difference_estimate(std::span<const double> one, std::span<const double> other,
                             std::size_t comparisons) {
  const Statistics a = statistics(one), b = statistics(other);
  const std::size_t count = std::min(a.count, b.count);
  if (count < 2) return {a.mean - b.mean, Statistics::kNone, Statistics::kNone, count};
  const double of_a = squared_error(a), of_b = squared_error(b), sum = of_a + of_b;
  const double degrees = sum * sum /
                         (of_a * of_a / static_cast<double>(a.count - 1) +
                          of_b * of_b / static_cast<double>(b.count - 1));
  return around(a.mean - b.mean, std::sqrt(sum), degrees, count, comparisons);
}

Estimate exponential(const Estimate& logarithm) {
  return {std::exp(logarithm.value), std::exp(logarithm.low), std::exp(logarithm.high),
          logarithm.count};
}

}  // namespace gradsync
