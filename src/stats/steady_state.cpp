#include "stats/steady_state.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "stats/statistics.h"

namespace gradsync {

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
  const auto measured = std::count_if(batches.begin(), batches.end(),
                                      [](double batch) { return std::isfinite(batch); });
  if (measured < static_cast<std::ptrdiff_t>(kSteadyBatches)) return {0, SteadyVerdict::kTooShort};
  const std::size_t start = best_start(batches);
  if (2 * start >= batches.size()) return {0, SteadyVerdict::kNotSteady};
  return {start * kSteadyBatch, SteadyVerdict::kFound};
}

}  // namespace gradsync
