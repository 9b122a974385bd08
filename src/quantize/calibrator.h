// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "quantize/scale.h"

/// How the numbers of a tensor are distributed, and the range that is chosen from it. Counts add up
/// to the same whatever the order and however the images were shared out: extremes are exact, sums
/// are integers.
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
  /// Call it between the passes, with the extremes of all ranks. Throws Error kBadData if there was
  /// no number.
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

/// The distribution of one tensor, by both passes.
Distribution distribution_of(std::span<const float> values);

/// How the range of a tensor is chosen from how its numbers lie.
enum class Calibrator {
  kMinMax,      ///< all of it
  kSigma,       ///< mean ± k·deviation, within the total range
  kPercentile,  ///< the part of the numbers that is left when both ends are cut alike
  kEntropy,     ///< the threshold whose integers lose the least information (KL divergence)
};

/// "min-max", "sigma", "percentile", "entropy".
const std::vector<std::string>& calibrator_names();
/// Requires one of calibrator_names() (Error kInternal otherwise).
Calibrator parse_calibrator(const std::string& name);
const std::string& calibrator_name(Calibrator calibrator);

struct CalibratorSettings {
  Calibrator how = Calibrator::kMinMax;
  double sigmas = 3;
  double percentile = 99.99;  ///< of the numbers, between the ends that are cut
  int bits = 8;               ///< entropy: how many integers there are to choose a threshold for
};

/// The range within the total one. Throws Error kBadData if all numbers are the same.
Range calibrated_range(const Distribution& values, const CalibratorSettings& settings);

/// The threshold T of |x| that entropy chooses: of all T at the upper edges of bins, from
/// 2^(bits−1) bins on, the one with the smallest KL divergence between the clipped histogram of |x|
/// and the same in 2^(bits−1) steps, the bin of 0 filled as its neighbor (S. Migacz, "8-bit
/// inference with TensorRT", GTC 2017).
double entropy_threshold(const Histogram& fine, int bits);

}  // namespace gradsync::quantize
