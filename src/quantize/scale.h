// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

/// Quantization: real = scale · (integer − zero point).
namespace gradsync::quantize {

inline constexpr int kLeastBits = 2, kMostBits = 8;

/// How a range becomes a scale. With b bits the integers are −2^(b−1) … 2^(b−1) − 1.
enum class Convention {
  kPublished,  ///< (max − min)/(2^(b−1) − 1), zero point 0: the published study's
  kMaxAbs,     ///< max|x|/(2^(b−1) − 1), zero point 0
  kAffine,     ///< (max − min)/(2^b − 1), zero point such that min becomes −2^(b−1)
};

/// "published", "max-abs", "affine", in the order of the enumeration.
const std::vector<std::string>& convention_names();
/// Requires one of convention_names() (Error kInternal otherwise).
Convention parse_convention(const std::string& name);
const std::string& convention_name(Convention convention);

/// Real numbers from low to high.
struct Range {
  double low = 0, high = 0;
};

/// How one tensor, or one channel of it, is quantized.
struct Quantizer {
  float scale = 1;
  std::int32_t zero_point = 0;
  std::int32_t low = -128, high = 127;  ///< the integers are clamped to these

  /// clamp(round(value/scale) + zero point), halves to the even neighbor.
  std::int32_t quantize(double value) const;
  double dequantize(std::int32_t value) const;
  /// The real numbers that are not clamped.
  Range unclamped() const;
};

/// The range is widened to hold 0, which all padding and every ReLU needs exactly. Throws Error
/// kInternal for bits outside 2…8, and kBadData for a range that is not finite or has no extent.
Quantizer make_quantizer(const Range& range, Convention convention, int bits);

/// The multiplier that turns an accumulator (in units of input scale × weight scale) into integers
/// of the output: float(double(input) · weight / output).
float output_multiplier(float input_scale, float weight_scale, float output_scale);

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
