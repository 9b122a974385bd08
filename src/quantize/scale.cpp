#include "quantize/scale.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"

namespace gradsync::quantize {

const std::vector<std::string>& convention_names() {
  static const std::vector<std::string> names = {"published", "max-abs", "affine"};
  return names;
}

Convention parse_convention(const std::string& name) {
  const auto& names = convention_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    throw Error(ExitCode::kInternal, fmt::format("no convention '{}'", name));
  return static_cast<Convention>(found - names.begin());
}

const std::string& convention_name(Convention convention) {
  return convention_names().at(static_cast<std::size_t>(convention));
}

std::int32_t Quantizer::quantize(double value) const {
  const double rounded = std::nearbyint(value / static_cast<double>(scale)) + zero_point;
  return static_cast<std::int32_t>(
      std::clamp(rounded, static_cast<double>(low), static_cast<double>(high)));
}

double Quantizer::dequantize(std::int32_t value) const {
  return static_cast<double>(scale) * (value - zero_point);
}

Range Quantizer::unclamped() const {
  return {static_cast<double>(scale) * (low - zero_point - 0.5),
          static_cast<double>(scale) * (high - zero_point + 0.5)};
}

Quantizer make_quantizer(const Range& range, Convention convention, int bits) {
  if (bits < kLeastBits || bits > kMostBits)
    throw Error(ExitCode::kInternal, fmt::format("{} bits", bits));
  if (!std::isfinite(range.low) || !std::isfinite(range.high))
    throw Error(ExitCode::kBadData, "the range is not finite");
  const double low = std::min(0.0, range.low), high = std::max(0.0, range.high);
  if (!(high > low)) throw Error(ExitCode::kBadData, "the range is zero");
  Quantizer result;
  const std::int32_t half = 1 << (bits - 1);
  result.low = -half;
  result.high = half - 1;
  const double levels = convention == Convention::kAffine ? 2.0 * half - 1 : half - 1;
  const double extent = convention == Convention::kMaxAbs ? std::max(-low, high) : high - low;
  result.scale = static_cast<float>(extent / levels);
  if (convention == Convention::kAffine)
    result.zero_point =
        static_cast<std::int32_t>(-half - std::nearbyint(low / static_cast<double>(result.scale)));
  return result;
}

float output_multiplier(float input_scale, float weight_scale, float output_scale) {
  return static_cast<float>(static_cast<double>(input_scale) * static_cast<double>(weight_scale) /
                            static_cast<double>(output_scale));
}

std::int32_t requantize(std::int32_t accumulator, float multiplier, float added,
                        const Quantizer& output) {
  float value = static_cast<float>(accumulator) * multiplier;
  value += added;
  const auto low = static_cast<float>(output.low - output.zero_point);
  const auto high = static_cast<float>(output.high - output.zero_point);
  return static_cast<std::int32_t>(std::nearbyint(std::clamp(value, low, high))) +
         output.zero_point;
}

}  // namespace gradsync::quantize
