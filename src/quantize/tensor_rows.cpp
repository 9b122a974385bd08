#include "quantize/tensor_rows.h"

#include <algorithm>
#include <cmath>

namespace gradsync::quantize {

static_assert(kHistogramBins == kPictureBins);

namespace {

constexpr double kSigmas = 3;
constexpr std::int32_t kLowestInteger = -128;

QuantizedTensorRow weight_row(const Node& node, const FloatLayer& layer,
                              const QuantizedWeights& weights) {
  QuantizedTensorRow row = tensor_row(node.name, "weight", distribution_of(layer.weights));
  const auto [least, largest] =
      std::minmax_element(weights.quantizers.begin(), weights.quantizers.end(),
                          [](const Quantizer& a, const Quantizer& b) { return a.scale < b.scale; });
  row.scales = static_cast<std::int64_t>(weights.quantizers.size());
  row.scale_least = static_cast<double>(least->scale);
  row.scale_largest = static_cast<double>(largest->scale);
  const bool same = std::all_of(
      weights.quantizers.begin(), weights.quantizers.end(),
      [&](const Quantizer& by) { return by.zero_point == weights.quantizers.front().zero_point; });
  if (same) row.zero_point = weights.quantizers.front().zero_point;
  row.sqnr_db = weights.sqnr_db;
  row.largest_error = weights.largest_error;
  row.clipped = weights.clipped;
  for (const std::int8_t value : weights.values)
    ++row.integers[static_cast<std::size_t>(value - kLowestInteger)];
  return row;
}

/// A bias of n units of input scale × weight scale.
QuantizedTensorRow bias_row(const Int8Model& quantized, std::size_t number,
                            const FloatLayer& layer) {
  const Node& node = quantized.plan.nodes[number];
  const Int8Layer& into = quantized.layers[number];
  const double input_scale = static_cast<double>(quantized.of_value(node.input).scale);
  QuantizedTensorRow row = tensor_row(node.name, "bias", distribution_of(layer.bias));
  std::vector<float> restored;
  row.scales = static_cast<std::int64_t>(into.weights.quantizers.size());
  row.largest_error = 0;
  for (std::size_t c = 0; c < into.bias.size(); ++c) {
    const double scale = input_scale * static_cast<double>(into.weights.of_channel(c).scale);
    row.scale_least = std::fmin(row.scale_least, scale);
    row.scale_largest = std::fmax(row.scale_largest, scale);
    restored.push_back(static_cast<float>(scale * into.bias[c]));
    row.largest_error = std::max(
        row.largest_error, std::abs(static_cast<double>(layer.bias[c]) - scale * into.bias[c]));
  }
  row.zero_point = 0;
  row.clipped = 0;
  row.sqnr_db = sqnr_db(layer.bias, restored);
  return row;
}

}  // namespace

QuantizedTensorRow tensor_row(const std::string& layer, const std::string& role,
                              const Distribution& values) {
  QuantizedTensorRow row;
  row.layer = layer;
  row.role = role;
  row.count = values.count;
  row.minimum = values.total.low;
  row.maximum = values.total.high;
  row.mean = values.mean;
  row.deviation = values.deviation;
  row.sigma_low = values.sigma(kSigmas).low;
  row.sigma_high = values.sigma(kSigmas).high;
  row.histogram = values.picture.counts;
  row.integers.assign(kHistogramLevels, 0);
  return row;
}

std::vector<QuantizedTensorRow> parameter_rows(const FloatModel& model,
                                               const Int8Model& quantized) {
  std::vector<QuantizedTensorRow> rows;
  for (std::size_t i = 0; i < model.plan.nodes.size(); ++i) {
    if (!model.plan.weighted(i)) continue;
    rows.push_back(weight_row(model.plan.nodes[i], model.layers[i], quantized.layers[i].weights));
    if (!model.layers[i].bias.empty()) rows.push_back(bias_row(quantized, i, model.layers[i]));
  }
  return rows;
}

QuantizedTensorRow activation_row(const std::string& layer, const Distribution& values,
                                  const Quantizer& by, double sqnr, const IntegerCounts& counts) {
  QuantizedTensorRow row = tensor_row(layer, "activation", values);
  row.scales = 1;
  row.scale_least = row.scale_largest = static_cast<double>(by.scale);
  row.zero_point = by.zero_point;
  row.sqnr_db = sqnr;
  row.clipped = values.fraction_outside(by.unclamped());
  row.integers.assign(counts.begin(), counts.end());
  return row;
}

}  // namespace gradsync::quantize
