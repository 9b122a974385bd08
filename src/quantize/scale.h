#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// From real numbers to small integers and back: real = scale · (integer − zero point).
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

/// What takes an accumulator (in units of input scale × weight scale) to integers of the output:
/// float(double(input) · weight / output). With it `requantize` is the suite's one definition of a
/// layer's output, which every path follows to the bit.
float output_multiplier(float input_scale, float weight_scale, float output_scale);

/// clamp(rint(float(accumulator) · multiplier) + zero point, low, high) in single precision,
/// without fused operations; rint rounds halves to even. `added` is what a shortcut brings, in
/// units of the output's scale (0 without one).
std::int32_t requantize(std::int32_t accumulator, float multiplier, float added,
                        const Quantizer& output);

}  // namespace gradsync::quantize
