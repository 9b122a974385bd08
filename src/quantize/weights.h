#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "quantize/scale.h"

namespace gradsync::quantize {

enum class Granularity { kTensor, kChannel };

/// How the weights of a layer become integers.
struct WeightScheme {
  Convention convention = Convention::kMaxAbs;
  Granularity granularity = Granularity::kChannel;
  int bits = 8;
  double sigmas = 0;  ///< range mean ± sigmas·deviation within the total one; 0: the total range

  /// "max-abs per channel, total range".
  std::string text() const;
};

/// Weights as integers, row-major as they were: [output channel][rest].
struct QuantizedWeights {
  std::vector<std::int8_t> values;
  std::vector<Quantizer> quantizers;  ///< one, or one an output channel
  double sqnr_db = 0;        ///< 10·log10(Σw² / Σ(w − ŵ)²); infinity where nothing is lost
  double largest_error = 0;  ///< of |w − ŵ|
  double clipped = 0;        ///< part of the weights beyond the clamped range

  const Quantizer& of_channel(std::size_t channel) const {
    return quantizers[quantizers.size() == 1 ? 0 : channel];
  }
};

/// A channel whose weights are so small that its scale would be below 2^−13 of the largest one gets
/// that: a bias in units of its scale must fit 32 bits. Throws Error kBadData if all weights of the
/// layer are 0 or one is not finite. Requires weights.size() to divide by `channels`.
QuantizedWeights quantize_weights(std::span<const float> weights, std::size_t channels,
                                  const WeightScheme& scheme);

/// The numbers that the integers stand for.
std::vector<float> dequantized(const QuantizedWeights& weights);

/// 10·log10(Σx² / Σ(x − y)²).
double sqnr_db(std::span<const float> exact, std::span<const float> approximate);

}  // namespace gradsync::quantize
