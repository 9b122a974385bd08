#include "quantize/distribution.h"

#include <algorithm>
#include <cmath>
#include <numeric>

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
  sum_ += fixed(sum);
  squares_ += fixed(squares);
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

}  // namespace gradsync::quantize
