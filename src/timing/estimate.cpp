#include "timing/estimate.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <boost/math/distributions/binomial.hpp>

namespace gradsync {

namespace {

constexpr int kResamples = 2000;
constexpr std::size_t kLeastForInterval = 6;

std::vector<double> finite(std::span<const double> values) {
  std::vector<double> kept;
  std::copy_if(values.begin(), values.end(), std::back_inserter(kept),
               [](double value) { return std::isfinite(value); });
  return kept;
}

/// Uniform in 0 … n − 1. std::uniform_int_distribution differs between standard libraries.
std::size_t draw(std::mt19937_64& random, std::size_t n) {
  return static_cast<std::size_t>((static_cast<unsigned __int128>(random()) * n) >> 64);
}

double resampled_median(const std::vector<double>& values, std::mt19937_64& random,
                        std::vector<double>& scratch) {
  scratch.resize(values.size());
  for (double& value : scratch)
    value = values[draw(random, values.size())];
  const auto middle = scratch.begin() + static_cast<std::ptrdiff_t>(scratch.size() / 2);
  std::nth_element(scratch.begin(), middle, scratch.end());
  if (scratch.size() % 2 == 1) return *middle;
  return (*std::max_element(scratch.begin(), middle) + *middle) / 2;
}

}  // namespace

Estimate median_estimate(std::span<const double> values) {
  std::vector<double> sorted = finite(values);
  std::sort(sorted.begin(), sorted.end());
  Estimate estimate{median(sorted), Statistics::kNone, Statistics::kNone, sorted.size()};
  const std::size_t n = sorted.size();
  if (n < kLeastForInterval) return estimate;
  // The largest l with P(X < l) <= (1 − confidence)/2, X ~ Binomial(n, 1/2); counted from 1.
  const boost::math::binomial_distribution<double> heads(static_cast<double>(n), 0.5);
  std::size_t l = 0;
  while (l < n && boost::math::cdf(heads, static_cast<double>(l)) <= (1 - kConfidence) / 2)
    ++l;
  estimate.low = sorted[l - 1];
  estimate.high = sorted[n - l];
  return estimate;
}

Estimate ratio_estimate(std::span<const double> above, std::span<const double> below,
                        std::uint64_t seed) {
  const std::vector<double> a = finite(above), b = finite(below);
  Estimate estimate{median(a) / median(b), Statistics::kNone, Statistics::kNone,
                    std::min(a.size(), b.size())};
  if (estimate.count < kLeastForInterval) return estimate;
  std::mt19937_64 random(seed);
  std::vector<double> ratios, scratch;
  for (int i = 0; i < kResamples; ++i) {
    const double numerator = resampled_median(a, random, scratch);
    ratios.push_back(numerator / resampled_median(b, random, scratch));
  }
  estimate.low = quantile(ratios, (1 - kConfidence) / 2);
  estimate.high = quantile(ratios, (1 + kConfidence) / 2);
  return estimate;
}

}  // namespace gradsync
