// SPDX-License-Identifier: BSD-3-Clause
#include "quantize/calibrator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "base/error.h"

namespace gradsync::quantize {

namespace {

/// Sums of a piece are rounded to this part of the unit; 2^63 of it are 8.6 thousand million
/// numbers.
constexpr double kFraction = 0x1p30;

std::int64_t fixed(double sum) {
  return static_cast<std::int64_t>(std::nearbyint(sum * kFraction));
}

double unit_above(const Range& range) {
  const double largest = std::max(std::abs(range.low), std::abs(range.high));
  return largest > 0 ? std::exp2(std::ceil(std::log2(largest))) : 1;
}

Range clipped(const Range& range, const Range& total) {
  return {std::max(range.low, total.low), std::min(range.high, total.high)};
}

/// The value below which `part` of the counts lie, at an edge of a bin.
double edge_below(const Histogram& histogram, double part) {
  const double wanted = part * static_cast<double>(histogram.total());
  double below = 0;
  std::size_t bin = 0;
  while (bin < histogram.counts.size() &&
         below + static_cast<double>(histogram.counts[bin]) <= wanted)
    below += static_cast<double>(histogram.counts[bin++]);
  return histogram.low + static_cast<double>(bin) * histogram.width();
}

double edge_above(const Histogram& histogram, double part) {
  Histogram mirrored(-histogram.high, -histogram.low, histogram.counts.size());
  std::reverse_copy(histogram.counts.begin(), histogram.counts.end(), mirrored.counts.begin());
  return -edge_below(mirrored, part);
}

/// Counts of |x| from 0 on: the two halves of a symmetric histogram laid on each other. Zeros are
/// exact at every scale, and half of what a ReLU gives: the first bin counts as its neighbor does,
/// or they alone would decide.
std::vector<double> folded(const Histogram& fine) {
  const std::size_t half = fine.counts.size() / 2;
  std::vector<double> counts(half);
  for (std::size_t bin = 0; bin < half; ++bin)
    counts[bin] = static_cast<double>(fine.counts[half + bin] + fine.counts[half - 1 - bin]);
  counts[0] = counts[1];
  return counts;
}

/// The bins of one step become its mean, where they were not empty.
void flatten(std::vector<double>& bins, std::size_t first, std::size_t last) {
  double sum = 0, filled = 0;
  for (std::size_t bin = first; bin < last; ++bin) {
    sum += bins[bin];
    filled += bins[bin] > 0 ? 1 : 0;
  }
  for (std::size_t bin = first; bin < last; ++bin)
    if (bins[bin] > 0) bins[bin] = sum / filled;
}

double divergence(const std::vector<double>& from, const std::vector<double>& to) {
  const double from_sum = std::accumulate(from.begin(), from.end(), 0.0);
  const double to_sum = std::accumulate(to.begin(), to.end(), 0.0);
  // What the coarse histogram gives no room at all counts as nearly impossible, not as infinite.
  constexpr double kLeast = 1e-9;
  double sum = 0;
  for (std::size_t bin = 0; bin < from.size(); ++bin) {
    if (from[bin] == 0) continue;
    const double p = from[bin] / from_sum;
    sum += p * std::log(p / std::max(kLeast, to[bin] / to_sum));
  }
  return sum;
}

double divergence_at(const std::vector<double>& counts, std::size_t bins, std::size_t steps) {
  std::vector<double> coarse(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(bins));
  std::vector<double> clipped = coarse;
  clipped.back() +=
      std::accumulate(counts.begin() + static_cast<std::ptrdiff_t>(bins), counts.end(), 0.0);
  for (std::size_t step = 0; step < steps; ++step)
    flatten(coarse, step * bins / steps, (step + 1) * bins / steps);
  return divergence(clipped, coarse);
}

Range within(double threshold, const Range& total) {
  return clipped({-threshold, threshold}, total);
}

Range percentile_range(const Distribution& values, double percentile) {
  const double cut = (1 - percentile / 100) / 2;
  return clipped({edge_below(values.fine, cut), edge_above(values.fine, cut)}, values.total);
}

}  // namespace

std::size_t Histogram::bin_of(double value) const {
  const double place = (value - low) / (high - low) * static_cast<double>(counts.size());
  if (!(place > 0)) return 0;
  return std::min(static_cast<std::size_t>(place), counts.size() - 1);
}

std::int64_t Histogram::total() const {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

double Distribution::fraction_outside(const Range& range) const {
  if (count == 0) return 0;
  std::int64_t outside = 0;
  for (std::size_t bin = 0; bin < fine.counts.size(); ++bin) {
    const double middle = fine.low + (static_cast<double>(bin) + 0.5) * fine.width();
    if (middle < range.low || middle > range.high) outside += fine.counts[bin];
  }
  return static_cast<double>(outside) / static_cast<double>(count);
}

void DistributionTally::add_extremes(std::span<const float> piece) {
  for (const float value : piece) {
    if (!std::isfinite(value)) throw Error(ExitCode::kNumbers, "a value is not finite");
    if (total_.low > total_.high) total_ = {value, value};
    total_.low = std::min(total_.low, static_cast<double>(value));
    total_.high = std::max(total_.high, static_cast<double>(value));
  }
}

void DistributionTally::set_extremes(const Range& total) {
  if (total.low > total.high) throw Error(ExitCode::kBadData, "there are no values");
  total_ = total;
  unit_ = unit_above(total);
  const double largest = std::max(std::abs(total.low), std::abs(total.high));
  picture_ = Histogram(total.low, total.high, kPictureBins);
  fine_ = Histogram(-largest, largest, kCalibrationBins);
}

void DistributionTally::add_counts(std::span<const float> piece) {
  double sum = 0, squares = 0;
  for (const float value : piece) {
    const double part = static_cast<double>(value) / unit_;
    sum += part;
    squares += part * part;
    picture_.add(value);
    fine_.add(value);
  }
  count_ += static_cast<std::int64_t>(piece.size());
  if (__builtin_add_overflow(sum_, fixed(sum), &sum_) ||
      __builtin_add_overflow(squares_, fixed(squares), &squares_))
    throw Error(ExitCode::kUsage, "more values of a layer than their mean can be taken of",
                "fewer --calibration-images");
}

std::vector<std::int64_t*> DistributionTally::integers() {
  std::vector<std::int64_t*> all = {&count_, &sum_, &squares_};
  for (Histogram* histogram : {&picture_, &fine_})
    for (std::int64_t& count : histogram->counts)
      all.push_back(&count);
  return all;
}

Distribution DistributionTally::result() const {
  Distribution result{count_, total_, 0, 0, picture_, fine_};
  if (count_ == 0) return result;
  const double scale = unit_ / kFraction / static_cast<double>(count_);
  result.mean = static_cast<double>(sum_) * scale;
  const double mean_square = static_cast<double>(squares_) * scale * unit_;
  result.deviation = std::sqrt(std::max(0.0, mean_square - result.mean * result.mean));
  return result;
}

Distribution distribution_of(std::span<const float> values) {
  DistributionTally tally;
  tally.add_extremes(values);
  tally.set_extremes(tally.extremes());
  tally.add_counts(values);
  return tally.result();
}

const std::vector<std::string>& calibrator_names() {
  static const std::vector<std::string> names = {"min-max", "sigma", "percentile", "entropy"};
  return names;
}

Calibrator parse_calibrator(const std::string& name) {
  const auto& names = calibrator_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    throw Error(ExitCode::kInternal, fmt::format("no calibrator '{}'", name));
  return static_cast<Calibrator>(found - names.begin());
}

const std::string& calibrator_name(Calibrator calibrator) {
  return calibrator_names().at(static_cast<std::size_t>(calibrator));
}

double entropy_threshold(const Histogram& fine, int bits) {
  const std::vector<double> counts = folded(fine);
  const std::size_t steps = std::size_t{1} << (bits - 1);
  std::size_t best = counts.size();
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t bins = steps; bins <= counts.size(); ++bins) {
    const double lost = divergence_at(counts, bins, steps);
    if (lost > least) continue;
    least = lost;
    best = bins;
  }
  return static_cast<double>(best) * fine.width();
}

Range calibrated_range(const Distribution& values, const CalibratorSettings& settings) {
  if (!(values.total.high > values.total.low))
    throw Error(ExitCode::kBadData,
                fmt::format("all {} values are {}", values.count, values.total.low));
  switch (settings.how) {
    case Calibrator::kMinMax:
      return values.total;
    case Calibrator::kSigma:
      return clipped(values.sigma(settings.sigmas), values.total);
    case Calibrator::kPercentile:
      return percentile_range(values, settings.percentile);
    case Calibrator::kEntropy:
      return within(entropy_threshold(values.fine, settings.bits), values.total);
  }
  throw Error(ExitCode::kInternal, "unknown calibrator");
}

}  // namespace gradsync::quantize
