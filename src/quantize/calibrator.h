#pragma once

#include <string>
#include <vector>

#include "quantize/distribution.h"

namespace gradsync::quantize {

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
