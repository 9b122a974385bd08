#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quantize/scale.h"

/// How the numbers of a tensor lie, in counts that add up to the same whatever the order and
/// however the images were shared out: extremes are exact, sums are integers.
namespace gradsync::quantize {

inline constexpr std::size_t kPictureBins = 60;        ///< of the histograms in pictures
inline constexpr std::size_t kCalibrationBins = 4096;  ///< from −max|x| to max|x|

/// Equal bins from low to high; the last one holds high, too.
struct Histogram {
  double low = 0, high = 0;
  std::vector<std::int64_t> counts;

  Histogram() = default;
  Histogram(double from, double to, std::size_t bins) : low(from), high(to), counts(bins) {}
  double width() const { return (high - low) / static_cast<double>(counts.size()); }
  /// The bin of a value; those beyond the ends count to the outer bins.
  std::size_t bin_of(double value) const;
  void add(double value) { ++counts[bin_of(value)]; }
  std::int64_t total() const;
};

/// What is known of a tensor's numbers.
struct Distribution {
  std::int64_t count = 0;
  Range total;
  double mean = 0, deviation = 0;  ///< of all numbers, n below the root
  Histogram picture;               ///< kPictureBins from total.low to total.high
  Histogram fine;                  ///< kCalibrationBins from −max|x| to max|x|

  /// mean ± k·deviation, not clipped: the published form.
  Range sigma(double k) const { return {mean - k * deviation, mean + k * deviation}; }
  /// The part of the numbers outside `range`, to the resolution of `fine`.
  double fraction_outside(const Range& range) const;
};

/// Gathers a distribution in two passes over the same numbers: extremes, then counts. Numbers come
/// in pieces (an image); what the pieces say is added up exactly, so ranks that share them out get
/// what one rank does.
class DistributionTally {
 public:
  /// First pass. Throws Error kNumbers if a number is not finite.
  void add_extremes(std::span<const float> piece);
  /// Between the passes, with the extremes of all ranks. Throws Error kBadData if there was no
  /// number.
  void set_extremes(const Range& total);
  Range extremes() const { return total_; }
  /// Second pass.
  void add_counts(std::span<const float> piece);
  /// All that the second pass counted, as integers to add up over the ranks, in place.
  std::vector<std::int64_t*> integers();
  Distribution result() const;

 private:
  Range total_{1, -1};  ///< empty
  double unit_ = 1;     ///< a power of two at or above max|x|: sums are of x/unit
  std::int64_t count_ = 0, sum_ = 0, squares_ = 0;  ///< sums in units of kFraction
  Histogram picture_, fine_;
};

/// Both passes over one tensor.
Distribution distribution_of(std::span<const float> values);

}  // namespace gradsync::quantize
