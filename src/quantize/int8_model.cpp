#include "quantize/int8_model.h"

#include <cmath>

#include <fmt/format.h>

#include "base/error.h"

namespace gradsync::quantize {

namespace {

constexpr double kLargestBias = 0x1p30;

/// Bias in units of input scale × weight scale.
std::vector<std::int32_t> integer_bias(const FloatLayer& layer, const Int8Layer& into,
                                       const Quantizer& input) {
  std::vector<std::int32_t> bias;
  for (std::size_t c = 0; c < layer.bias.size(); ++c) {
    const double unit =
        static_cast<double>(input.scale) * static_cast<double>(into.weights.of_channel(c).scale);
    const double units = std::nearbyint(static_cast<double>(layer.bias[c]) / unit);
    if (!(std::abs(units) <= kLargestBias))
      throw Error(ExitCode::kBadData,
                  fmt::format("the bias of channel {} is {} units of its scale", c, units));
    bias.push_back(static_cast<std::int32_t>(units));
  }
  return bias;
}

Int8Layer weighted_layer(const Node& node, const FloatLayer& layer, const WeightScheme& scheme,
                         const Quantizer& input, float output_scale) {
  Int8Layer result;
  result.weights = quantize_weights(layer.weights, node.out_channels, scheme);
  result.bias = integer_bias(layer, result, input);
  for (std::size_t c = 0; c < node.out_channels; ++c)
    result.multipliers.push_back(
        output_multiplier(input.scale, result.weights.of_channel(c).scale, output_scale));
  return result;
}

Int8Layer quantize_node(const Int8Model& done, std::size_t number, const FloatLayer& layer,
                        const WeightScheme& scheme, const Quantizer& output) {
  const Node& node = done.plan.nodes[number];
  const Quantizer& input = done.of_value(node.input);
  Int8Layer result;
  if (node.kind == NodeKind::kConvolution)
    result = weighted_layer(node, layer, scheme, input,
                            done.plan.rescales(number) ? output.scale : 1.0f);
  if (node.kind == NodeKind::kMeanPool)
    result.multipliers = {output_multiplier(
        input.scale, 1.0f / static_cast<float>(node.kernel * node.kernel), output.scale)};
  if (node.added >= 0)
    result.added_multiplier = output_multiplier(
        done.of_value(static_cast<std::size_t>(node.added)).scale, 1, output.scale);
  result.output = node.kind == NodeKind::kMaxPool ? input : output;
  return result;
}

}  // namespace

Int8Model quantize_model(const FloatModel& model, const WeightScheme& scheme,
                         const ValueQuantizers& values) {
  Int8Model result{model.plan, values.at(0), {}};
  for (std::size_t i = 0; i < model.plan.nodes.size(); ++i)
    try {
      result.layers.push_back(quantize_node(result, i, model.layers[i], scheme, values.at(i + 1)));
    } catch (const Error& error) {
      if (error.code() != ExitCode::kBadData) throw;
      throw Error(ExitCode::kBadData,
                  fmt::format("layer {}: {}", model.plan.nodes[i].name, error.what()), error.fix());
    }
  return result;
}

std::int64_t int8_bytes(const Int8Model& model) {
  std::size_t bytes = 0;
  for (const Int8Layer& layer : model.layers)
    bytes += layer.weights.values.size() +
             layer.weights.quantizers.size() * (sizeof(float) + sizeof(std::int8_t)) +
             layer.bias.size() * sizeof(std::int32_t) + sizeof(float) + sizeof(std::int8_t);
  return static_cast<std::int64_t>(bytes);
}

}  // namespace gradsync::quantize
