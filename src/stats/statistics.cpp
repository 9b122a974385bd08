// SPDX-License-Identifier: BSD-3-Clause
#include "stats/statistics.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"

namespace gradsync {

namespace {

bool finite(double value) {
  return std::isfinite(value);
}

double sorted_quantile(const std::vector<double>& sorted, double p) {
  if (sorted.empty()) return Statistics::kNone;
  const double h = static_cast<double>(sorted.size() - 1) * p;
  const auto below = static_cast<std::size_t>(h);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (h - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

// Differences from the mean first: the sum of squares alone loses all digits for equal values.
double sample_deviation(const std::vector<double>& values, double mean_value) {
  if (values.size() < 2) return Statistics::kNone;
  double squares = 0;
  for (double value : values)
    squares += (value - mean_value) * (value - mean_value);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

}  // namespace

std::vector<double> sorted_finite(std::span<const double> values) {
  std::vector<double> kept;
  kept.reserve(values.size());
  std::ranges::copy_if(values, std::back_inserter(kept), finite);
  std::ranges::sort(kept);
  return kept;
}

double sum(std::span<const double> values) {
  double total = Statistics::kNone;
  for (const double value : values)
    if (finite(value)) total = std::isnan(total) ? value : total + value;
  return total;
}

double mean(std::span<const double> values) {
  const auto count = std::ranges::count_if(values, finite);
  return sum(values) / static_cast<double>(count);
}

Statistics statistics(std::span<const double> values) {
  const std::vector<double> sorted = sorted_finite(values);
  Statistics result;
  result.count = sorted.size();
  result.left_out = values.size() - sorted.size();
  if (sorted.empty()) return result;
  result.mean = mean(sorted);
  result.deviation = sample_deviation(sorted, result.mean);
  if (result.mean > 0) result.variation = result.deviation / result.mean;
  result.minimum = sorted.front();
  result.median = sorted_quantile(sorted, 0.5);
  result.p95 = sorted_quantile(sorted, 0.95);
  result.p99 = sorted_quantile(sorted, 0.99);
  result.maximum = sorted.back();
  return result;
}

double quantile(std::span<const double> values, double p) {
  if (!(p >= 0 && p <= 1))
    throw Error(ExitCode::kInternal, fmt::format("quantile {} is not between 0 and 1", p));
  return sorted_quantile(sorted_finite(values), p);
}

double median(std::span<const double> values) {
  return quantile(values, 0.5);
}

std::vector<double> moving_median(const std::vector<double>& values, std::size_t window) {
  const std::size_t half = window / 2;
  std::vector<double> medians;
  medians.reserve(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t begin = i - std::min(i, half);
    const std::size_t end = std::min(i + half + 1, values.size());
    medians.push_back(median(std::span(values).subspan(begin, end - begin)));
  }
  return medians;
}

namespace {

/// A batch at its place in the series. What is left at the end, less than a batch, is ignored.
std::vector<double> batch_medians(std::span<const double> values) {
  std::vector<double> medians;
  for (std::size_t at = 0; at + kSteadyBatch <= values.size(); at += kSteadyBatch)
    medians.push_back(median(values.subspan(at, kSteadyBatch)));
  return medians;
}

/// The number of batches to drop; from the end, so that mean and sum of squares grow by one batch
/// at a time (Welford's recurrence).
std::size_t best_start(const std::vector<double>& batches) {
  double mean = 0, squares = 0, kept = 0;
  double least = std::numeric_limits<double>::infinity();
  std::size_t best = 0;
  for (std::size_t d = batches.size(); d-- > 0;) {
    if (!std::isfinite(batches[d])) continue;
    kept += 1;
    const double step = batches[d] - mean;
    mean += step / kept;
    squares += step * (batches[d] - mean);
    // The last few batches say nothing of their own spread; with equal scores keep more.
    if (kept < static_cast<double>(kSteadyBatches) / 2 || squares / (kept * kept) > least) continue;
    least = squares / (kept * kept);
    best = d;
  }
  return best;
}

}  // namespace

SteadyState steady_state(std::span<const double> values) {
  const std::vector<double> batches = batch_medians(values);
  const auto measured =
      std::ranges::count_if(batches, [](double batch) { return std::isfinite(batch); });
  if (measured < static_cast<std::ptrdiff_t>(kSteadyBatches)) return {0, SteadyVerdict::kTooShort};
  const std::size_t start = best_start(batches);
  if (2 * start >= batches.size()) return {0, SteadyVerdict::kNotSteady};
  return {start * kSteadyBatch, SteadyVerdict::kFound};
}

}  // namespace gradsync
