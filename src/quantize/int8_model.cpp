// SPDX-License-Identifier: BSD-3-Clause
#include "quantize/int8_model.h"

#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "checkpoint/checkpoint_file.h"

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

/// Tensors with their bytes, wide ones first so that all are aligned.
class TensorList {
 public:
  template <typename Number>
  void add(const std::string& name, const char* dtype, std::vector<std::int64_t> shape,
           const std::vector<Number>& values) {
    auto& list = sizeof(Number) > 1 ? wide_ : narrow_;
    std::vector<std::byte> bytes(values.size() * sizeof(Number));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    list.push_back({{name, dtype, std::move(shape)}, std::move(bytes)});
  }

  std::int64_t bytes() const {
    std::size_t all = 0;
    for (const auto* part : {&wide_, &narrow_})
      for (const Entry& one : *part)
        all += one.bytes.size();
    return static_cast<std::int64_t>(all);
  }

  void write(const std::filesystem::path& file, TextMap metadata) {
    wide_.insert(wide_.end(), narrow_.begin(), narrow_.end());
    std::vector<TensorInfo> infos;
    for (const auto& one : wide_)
      infos.push_back(one.info);
    CheckpointWriter writer(file, infos, std::move(metadata));
    for (const auto& one : wide_)
      writer.write(one.bytes);
    writer.finish();
  }

 private:
  struct Entry {
    TensorInfo info;
    std::vector<std::byte> bytes;
  };
  std::vector<Entry> wide_, narrow_;
};

std::int64_t size(std::size_t value) {
  return static_cast<std::int64_t>(value);
}

/// [out][row][column][in] to [out][in][row][column].
std::vector<std::int8_t> channels_first(const Node& node, const std::vector<std::int8_t>& values) {
  const std::size_t plane = node.kernel * node.kernel;
  std::vector<std::int8_t> result(values.size());
  for (std::size_t out = 0; out < node.out_channels; ++out)
    for (std::size_t place = 0; place < plane; ++place)
      for (std::size_t in = 0; in < node.in_channels; ++in)
        result[(out * node.in_channels + in) * plane + place] =
            values[(out * plane + place) * node.in_channels + in];
  return result;
}

void add_quantizer(TensorList& list, const std::string& name, const Quantizer& by) {
  list.add(name + "scale", "F32", {1}, std::vector<float>{by.scale});
  list.add(name + "zero_point", "I8", {1},
           std::vector<std::int8_t>{static_cast<std::int8_t>(by.zero_point)});
}

void add_weights(TensorList& list, const Node& node, const Int8Layer& layer) {
  std::vector<float> scales;
  std::vector<std::int8_t> zero_points;
  for (const Quantizer& by : layer.weights.quantizers) {
    scales.push_back(by.scale);
    zero_points.push_back(static_cast<std::int8_t>(by.zero_point));
  }
  std::vector<std::int64_t> shape = {size(node.out_channels), size(node.in_channels),
                                     size(node.kernel), size(node.kernel)};
  if (node.linear)
    shape = {size(node.out_channels), size(node.in_channels * node.kernel * node.kernel)};
  list.add(node.name + ".weight", "I8", shape, channels_first(node, layer.weights.values));
  list.add(node.name + ".weight_scale", "F32", {size(scales.size())}, scales);
  list.add(node.name + ".weight_zero_point", "I8", {size(scales.size())}, zero_points);
  if (!layer.bias.empty())
    list.add(node.name + ".bias", "I32", {size(layer.bias.size())}, layer.bias);
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

namespace {

TensorList tensors_of(const Int8Model& model) {
  TensorList list;
  add_quantizer(list, "input.", model.input);
  for (std::size_t i = 0; i < model.plan.nodes.size(); ++i) {
    const Node& node = model.plan.nodes[i];
    if (model.plan.weighted(i)) add_weights(list, node, model.layers[i]);
    if (model.plan.rescales(i)) add_quantizer(list, node.name + ".", model.layers[i].output);
  }
  return list;
}

}  // namespace

std::int64_t int8_bytes(const Int8Model& model) {
  return tensors_of(model).bytes();
}

void write_int8_model(const Int8Model& model, TextMap metadata, const std::filesystem::path& file) {
  require_free(file, "choose another --save; nothing is overwritten");
  metadata["format"] = std::string(kInt8Format);
  metadata["model"] = model.plan.model;
  tensors_of(model).write(file, std::move(metadata));
}

}  // namespace gradsync::quantize
