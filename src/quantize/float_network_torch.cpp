// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "quantize/float_network.h"

namespace gradsync::quantize {

namespace {

using torch::Tensor;

/// A copy of weights [out][row][column][in] as a tensor [out, in, row, column], channels last.
Tensor weight_tensor(const Node& node, const std::vector<float>& values) {
  const auto size = [](std::size_t value) { return static_cast<std::int64_t>(value); };
  return torch::from_blob(const_cast<float*>(values.data()),
                          {size(node.out_channels), size(node.kernel), size(node.kernel),
                           size(node.in_channels)})
      .clone()
      .permute({0, 3, 1, 2});
}

Tensor vector_tensor(const std::vector<float>& values) {
  return torch::tensor(values, torch::kFloat32);
}

Tensor per_channel(const Tensor& values) {
  return values.view({1, -1, 1, 1});
}

Tensor convolved(const Node& node, const Tensor& input, const Tensor& weights, const Tensor& bias) {
  const auto stride = static_cast<std::int64_t>(node.stride);
  const auto padding = static_cast<std::int64_t>(node.padding);
  return at::conv2d(input, weights, bias, {stride, stride}, at::IntArrayRef({padding, padding}));
}

Tensor max_pooled(const Node& node, const Tensor& input) {
  const auto kernel = static_cast<std::int64_t>(node.kernel);
  return at::max_pool2d(input, {kernel, kernel});
}

/// The largest sum that an output can come to over input channels `first` to `last`, of either sign
/// and at any moment; without its bias, which is added in double precision.
double largest_sum(const Int8Model& model, std::size_t number, std::size_t first,
                   std::size_t last) {
  const Node& node = model.plan.nodes[number];
  const Int8Layer& layer = model.layers[number];
  const Quantizer& input = model.of_value(node.input);
  const double largest_input =
      std::max(input.zero_point - input.low, input.high - input.zero_point);
  const std::size_t places = node.kernel * node.kernel;
  double largest = 0;
  for (std::size_t c = 0; c < node.out_channels; ++c) {
    double sum = 0;
    for (std::size_t place = c * places; place < (c + 1) * places; ++place)
      for (std::size_t channel = first; channel < last; ++channel)
        sum += largest_input * std::abs(layer.weights.values[place * node.in_channels + channel] -
                                        layer.weights.of_channel(c).zero_point);
    largest = std::max(largest, sum);
  }
  return largest;
}

/// Into how many equal parts the input channels are cut so that single precision is exact.
std::int64_t slices_of(const Int8Model& model, std::size_t number) {
  constexpr double kExact = 0x1p24;
  const std::size_t channels = model.plan.nodes[number].in_channels;
  for (std::size_t slices = 1;; slices *= 2) {
    if (slices > channels || channels % slices != 0)
      throw Error(ExitCode::kInternal, "sums that no slice keeps below 2^24");
    double largest = 0;
    for (std::size_t first = 0; first < channels; first += channels / slices)
      largest = std::max(largest, largest_sum(model, number, first, first + channels / slices));
    if (largest < kExact) return static_cast<std::int64_t>(slices);
  }
}

std::vector<float> whole_weights(const Node& node, const QuantizedWeights& weights) {
  std::vector<float> values;
  const std::size_t length = node.weights() / node.out_channels;
  for (std::size_t i = 0; i < weights.values.size(); ++i) {
    const std::size_t channel = i / length;
    values.push_back(
        static_cast<float>(weights.values[i] - weights.of_channel(channel).zero_point));
  }
  return values;
}

/// Bias in units of the accumulators: rounded, or as it was trained.
Tensor accumulator_bias(const Int8Model& model, std::size_t number, const FloatModel* float_bias) {
  const Int8Layer& layer = model.layers[number];
  if (layer.bias.empty()) return {};
  std::vector<double> units(layer.bias.begin(), layer.bias.end());
  if (float_bias != nullptr)
    for (std::size_t c = 0; c < units.size(); ++c)
      units[c] = static_cast<double>(float_bias->layers[number].bias[c]) /
                 (static_cast<double>(model.of_value(model.plan.nodes[number].input).scale) *
                  static_cast<double>(layer.weights.of_channel(c).scale));
  return torch::tensor(units, torch::kFloat64);
}

void load(const CheckpointFile& checkpoint, const std::string& name, torch::Tensor& into) {
  const TensorPlace* place = checkpoint.find(name);
  if (place == nullptr || place->end - place->begin != into.nbytes())
    throw Error(ExitCode::kBadData, fmt::format("checkpoint '{}' has no '{}' that fits",
                                                checkpoint.path().string(), name));
  torch::Tensor values = torch::empty(into.sizes(), into.options());
  std::memcpy(values.data_ptr(), trained_bytes(checkpoint, *place).data(), values.nbytes());
  into.copy_(values);
}

}  // namespace

FloatNetwork::FloatNetwork(const FloatModel& model) : plan_(model.plan) {
  for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
    const FloatLayer& layer = model.layers[i];
    weights_.push_back(plan_.weighted(i) ? weight_tensor(plan_.nodes[i], layer.weights) : Tensor());
    biases_.push_back(layer.bias.empty() ? Tensor() : vector_tensor(layer.bias));
  }
}

Tensor FloatNetwork::forward(const Tensor& images, const ValueObserver& observe) const {
  const torch::NoGradGuard no_grad;
  std::vector<Tensor> values = {images};
  if (observe) observe(0, images);
  for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
    const Node& node = plan_.nodes[i];
    Tensor value = values[node.input];
    if (node.kind == NodeKind::kConvolution)
      value = convolved(node, value, weights_[i], biases_[i]);
    else
      value = node.kind == NodeKind::kMaxPool ? max_pooled(node, value)
                                              : value.mean({2, 3}, /*keepdim=*/true);
    if (node.added >= 0) value = value + values[static_cast<std::size_t>(node.added)];
    if (node.relu) value = value.relu_();
    if (observe) observe(i + 1, value);
    values.push_back(value);
  }
  return values.back().flatten(1);
}

EmulatedNetwork::EmulatedNetwork(const Int8Model& model, const FloatModel* float_bias)
    : model_(model) {
  for (std::size_t i = 0; i < model_.plan.nodes.size(); ++i) {
    Layer layer;
    const Node& node = model_.plan.nodes[i];
    if (model_.plan.weighted(i)) {
      layer.slices = slices_of(model_, i);
      layer.weights = weight_tensor(node, whole_weights(node, model_.layers[i].weights));
      layer.bias = accumulator_bias(model_, i, float_bias);
    }
    if (!model_.layers[i].multipliers.empty())
      layer.multipliers = per_channel(vector_tensor(model_.layers[i].multipliers));
    layers_.push_back(layer);
  }
}

/// Accumulators, rounded to single precision as an int32 is that becomes a float.
Tensor EmulatedNetwork::sums_of(std::size_t number, const Tensor& input) const {
  const Node& node = model_.plan.nodes[number];
  if (node.kind == NodeKind::kMeanPool) return input.sum({2, 3}, /*keepdim=*/true);
  const Layer& layer = layers_[number];
  const std::int64_t length = input.size(1) / layer.slices;
  Tensor sums;
  for (std::int64_t first = 0; first < input.size(1); first += length) {
    const Tensor part =
        convolved(node, input.narrow(1, first, length), layer.weights.narrow(1, first, length), {});
    sums = sums.defined() ? sums + part : layer.slices > 1 ? part.to(torch::kFloat64) : part;
  }
  if (layer.bias.defined()) sums = sums + per_channel(layer.bias);
  return sums.to(torch::kFloat32);
}

/// Whole numbers within the output's range, its zero point taken off.
Tensor EmulatedNetwork::rescaled(std::size_t number, const Tensor& value) const {
  const Quantizer& output = model_.layers[number].output;
  const bool relu = model_.plan.nodes[number].relu;
  return value.clamp(relu ? 0 : output.low - output.zero_point, output.high - output.zero_point)
      .round();
}

Tensor EmulatedNetwork::forward(const Tensor& images, const ValueObserver& observe) const {
  const torch::NoGradGuard no_grad;
  const Quantizer& input = model_.input;
  std::vector<Tensor> values = {
      (images * (1.0f / input.scale))
          .clamp(input.low - input.zero_point, input.high - input.zero_point)
          .round()};
  if (observe) observe(0, values[0]);
  for (std::size_t i = 0; i < model_.plan.nodes.size(); ++i) {
    const Node& node = model_.plan.nodes[i];
    if (node.kind == NodeKind::kMaxPool) {
      values.push_back(max_pooled(node, values[node.input]));
    } else {
      Tensor value = sums_of(i, values[node.input]) * layers_[i].multipliers;
      if (node.added >= 0)
        value = value +
                values[static_cast<std::size_t>(node.added)] * model_.layers[i].added_multiplier;
      values.push_back(i + 1 < model_.plan.nodes.size() ? rescaled(i, value) : value);
    }
    if (observe) observe(i + 1, values.back());
  }
  return values.back().flatten(1);
}

std::shared_ptr<Network> trained_network(const CheckpointFile& checkpoint,
                                         const std::string& model) {
  const torch::NoGradGuard no_grad;
  auto network = make_network(model, 1);
  for (auto& item : network->named_parameters()) {
    load(checkpoint, "parameters/" + item.key(), item.value());
    if (item.value().dim() == 4)
      item.value().set_data(item.value().data().contiguous(at::MemoryFormat::ChannelsLast));
  }
  for (auto& item : network->named_buffers())
    load(checkpoint, "buffers/" + item.key(), item.value());
  network->eval();
  return network;
}

double folding_difference(Network& trained, const FloatModel& folded, const torch::Tensor& images) {
  constexpr double kLargest = 1e-3;
  const torch::NoGradGuard no_grad;
  const torch::Tensor expected = trained.forward(images);
  if (!torch::isfinite(expected).all().item<bool>())
    throw Error(ExitCode::kNumbers, "the trained network's logits are not all finite",
                "the network does not work: look at its test accuracy");
  const torch::Tensor found = FloatNetwork(folded).forward(images);
  if (torch::equal(found, expected)) return 0;  // also where all are 0
  const double difference = ((found - expected).abs().max() / expected.abs().max()).item<double>();
  if (!(difference <= kLargest))
    throw Error(
        ExitCode::kInternal,
        fmt::format("the folded network's logits differ by {:.1e} of the largest one", difference));
  return difference;
}

}  // namespace gradsync::quantize
