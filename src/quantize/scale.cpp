// SPDX-License-Identifier: BSD-3-Clause
#include "quantize/scale.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/error.h"

namespace gradsync::quantize {

namespace {

constexpr float kLeastPartOfScale = 0x1p-13f;

void require_usable(std::span<const float> weights) {
  for (std::size_t i = 0; i < weights.size(); ++i)
    if (!std::isfinite(weights[i]))
      throw Error(ExitCode::kBadData, fmt::format("weight {} is {}", i, weights[i]));
  if (std::all_of(weights.begin(), weights.end(), [](float w) { return w == 0; }))
    throw Error(ExitCode::kBadData, "all its weights are 0");
}

Range range_of(std::span<const float> weights, double sigmas) {
  const auto [low, high] = std::minmax_element(weights.begin(), weights.end());
  const Range total{*low, *high};
  if (sigmas == 0) return total;
  double sum = 0, squares = 0;
  for (const float weight : weights) {
    sum += static_cast<double>(weight);
    squares += static_cast<double>(weight) * static_cast<double>(weight);
  }
  const auto count = static_cast<double>(weights.size());
  const double mean = sum / count;
  const double deviation = std::sqrt(std::max(0.0, squares / count - mean * mean));
  return {std::max(total.low, mean - sigmas * deviation),
          std::min(total.high, mean + sigmas * deviation)};
}

bool is_zero(const Range& range) {
  return !(std::max(0.0, range.high) > std::min(0.0, range.low));
}

/// One quantizer a channel; channels without weights, or with hardly any, get the least scale.
std::vector<Quantizer> channel_quantizers(std::span<const float> weights, std::size_t channels,
                                          const WeightScheme& scheme) {
  const std::size_t length = weights.size() / channels;
  std::vector<Range> ranges;
  float largest = 0;
  for (std::size_t c = 0; c < channels; ++c) {
    ranges.push_back(range_of(weights.subspan(c * length, length), scheme.sigmas));
    if (!is_zero(ranges.back()))
      largest =
          std::max(largest, make_quantizer(ranges.back(), scheme.convention, scheme.bits).scale);
  }
  std::vector<Quantizer> quantizers;
  for (const Range& range : ranges) {
    Quantizer one =
        make_quantizer(is_zero(range) ? Range{0, 1} : range, scheme.convention, scheme.bits);
    if (is_zero(range) || one.scale < kLeastPartOfScale * largest) {
      one.scale = kLeastPartOfScale * largest;
      one.zero_point = 0;
    }
    quantizers.push_back(one);
  }
  return quantizers;
}

bool beyond(double value, const Quantizer& by) {
  const Range range = by.unclamped();
  return value < range.low || value > range.high;
}

}  // namespace

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

std::string WeightScheme::text() const {
  return fmt::format("{} per {}, {}", convention_name(convention),
                     granularity == Granularity::kTensor ? "tensor" : "channel",
                     sigmas == 0 ? "total range" : fmt::format("{:g}-sigma range", sigmas));
}

QuantizedWeights quantize_weights(std::span<const float> weights, std::size_t channels,
                                  const WeightScheme& scheme) {
  if (channels == 0 || weights.size() % channels != 0)
    throw Error(ExitCode::kInternal, "weights that are no whole channels");
  require_usable(weights);
  QuantizedWeights result;
  const bool whole = scheme.granularity == Granularity::kTensor;
  result.quantizers = channel_quantizers(weights, whole ? 1 : channels, scheme);
  const std::size_t length = weights.size() / channels;
  std::size_t clipped = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Quantizer& by = result.of_channel(i / length);
    result.values.push_back(static_cast<std::int8_t>(by.quantize(weights[i])));
    result.largest_error =
        std::max(result.largest_error, std::abs(weights[i] - by.dequantize(result.values[i])));
    clipped += beyond(weights[i], by) ? 1 : 0;
  }
  result.sqnr_db = sqnr_db(weights, dequantized(result));
  result.clipped = static_cast<double>(clipped) / static_cast<double>(weights.size());
  return result;
}

std::vector<float> dequantized(const QuantizedWeights& weights) {
  const std::size_t channels = std::max<std::size_t>(1, weights.quantizers.size());
  const std::size_t length = weights.values.size() / channels;
  std::vector<float> values;
  for (std::size_t i = 0; i < weights.values.size(); ++i)
    values.push_back(
        static_cast<float>(weights.of_channel(i / length).dequantize(weights.values[i])));
  return values;
}

double sqnr_db(std::span<const float> exact, std::span<const float> approximate) {
  double signal = 0, noise = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double x = exact[i], difference = x - static_cast<double>(approximate[i]);
    signal += x * x;
    noise += difference * difference;
  }
  if (noise == 0) return std::numeric_limits<double>::infinity();
  return 10 * std::log10(signal / noise);
}

}  // namespace gradsync::quantize
