// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <random>

#include <doctest/doctest.h>

#include "model/image_batch.h"
#include "quantize/float_network.h"

using namespace gradsync;
using namespace gradsync::quantize;

namespace {

/// A model of random weights with what a plan asks for.
FloatModel random_model(const std::string& name, unsigned seed) {
  FloatModel model{make_plan(name), {}};
  std::mt19937 engine(seed);
  for (const Node& node : model.plan.nodes) {
    FloatLayer layer;
    if (node.kind == NodeKind::kConvolution) {
      std::normal_distribution<float> normal(0,
                                             1 / std::sqrt(static_cast<float>(node.weights()) /
                                                           static_cast<float>(node.out_channels)));
      for (std::size_t i = 0; i < node.weights(); ++i)
        layer.weights.push_back(normal(engine));
      if (node.biased || !node.norm.empty())
        for (std::size_t i = 0; i < node.out_channels; ++i)
          layer.bias.push_back(normal(engine));
    }
    model.layers.push_back(layer);
  }
  return model;
}

ValueQuantizers quantizers_for(const Plan& plan, Convention convention) {
  ValueQuantizers values = {make_quantizer({-2, 2}, convention, 8)};
  for (const Node& node : plan.nodes)
    values.push_back(make_quantizer({node.relu ? 0.0 : -1.0, 2}, convention, 8));
  return values;
}

std::vector<float> random_images(std::size_t count) {
  std::mt19937 engine(3);
  std::uniform_real_distribution<float> uniform(-2.2f, 2.2f);
  std::vector<float> images(count * 3072);
  for (float& value : images)
    value = uniform(engine);
  return images;
}

std::vector<float> logits_of(const Int8Model& model, std::vector<float> images) {
  const auto count = static_cast<std::int64_t>(images.size() / 3072);
  const torch::Tensor logits =
      EmulatedNetwork(model).forward(image_batch(images.data(), count, Layout::kNhwc)).contiguous();
  return {logits.data_ptr<float>(), logits.data_ptr<float>() + logits.numel()};
}

/// clamp(rint(float(accumulator) · multiplier + added) + zero point) in single precision.
std::int32_t requantize(std::int32_t accumulator, float multiplier, float added,
                        const Quantizer& output) {
  const float product = static_cast<float>(accumulator) * multiplier;
  const auto low = static_cast<float>(output.low - output.zero_point);
  const auto high = static_cast<float>(output.high - output.zero_point);
  return static_cast<std::int32_t>(std::nearbyint(std::clamp(product + added, low, high))) +
         output.zero_point;
}

/// The definition, number by number: integers with zero points taken off, in 64 bits.
class Definition {
 public:
  explicit Definition(const Int8Model& model) : model_(model) {}

  std::vector<float> run(const float* image) {
    values_.assign(1, {});
    for (std::size_t i = 0; i < 3072; ++i) {
      const float level = std::nearbyint(image[i] * (1.0f / model_.input.scale));
      values_[0].push_back(std::clamp(static_cast<std::int32_t>(level) + model_.input.zero_point,
                                      model_.input.low, model_.input.high));
    }
    for (std::size_t node = 0; node < model_.plan.nodes.size(); ++node)
      values_.push_back(output_of(node));
    return logits_;
  }

 private:
  std::int64_t input_at(const Node& node, std::size_t row, std::size_t column,
                        std::size_t channel) const {
    const std::size_t side = node.in_side;
    if (row < node.padding || column < node.padding || row - node.padding >= side ||
        column - node.padding >= side)
      return 0;
    const std::size_t place =
        ((row - node.padding) * side + column - node.padding) * node.in_channels + channel;
    return values_[node.input][place] - model_.of_value(node.input).zero_point;
  }

  std::vector<std::int32_t> output_of(std::size_t number) {
    const Node& node = model_.plan.nodes[number];
    std::vector<std::int32_t> out;
    logits_.clear();
    for (std::size_t row = 0; row < node.out_side; ++row)
      for (std::size_t column = 0; column < node.out_side; ++column)
        for (std::size_t channel = 0; channel < node.out_channels; ++channel)
          out.push_back(at(number, row, column, channel));
    return out;
  }

  std::int32_t at(std::size_t number, std::size_t row, std::size_t column, std::size_t channel) {
    const Node& node = model_.plan.nodes[number];
    const Int8Layer& layer = model_.layers[number];
    const std::int32_t zero = layer.output.zero_point;
    std::int64_t sum = 0, largest = -1000;
    for (std::size_t i = 0; i < node.kernel; ++i)
      for (std::size_t j = 0; j < node.kernel; ++j)
        for (std::size_t c = 0; c < node.in_channels; ++c) {
          const std::int64_t seen =
              input_at(node, row * node.stride + i, column * node.stride + j, c);
          if (node.kind == NodeKind::kConvolution) {
            const std::size_t place =
                ((channel * node.kernel + i) * node.kernel + j) * node.in_channels + c;
            sum +=
                seen * (layer.weights.values[place] - layer.weights.of_channel(channel).zero_point);
          } else if (c == channel) {
            sum += seen;
            largest = std::max(largest, seen);
          }
        }
    if (node.kind == NodeKind::kMaxPool) return static_cast<std::int32_t>(largest) + zero;
    if (!layer.bias.empty()) sum += layer.bias[channel];
    const bool mean = node.kind == NodeKind::kMeanPool;
    const float multiplier = layer.multipliers[mean ? 0 : channel];
    if (number + 1 == model_.plan.nodes.size())
      logits_.push_back(static_cast<float>(sum) * multiplier);
    float added = 0;
    if (node.added >= 0) {
      const auto value = static_cast<std::size_t>(node.added);
      const std::size_t place = (row * node.out_side + column) * node.out_channels + channel;
      added = static_cast<float>(values_[value][place] - model_.of_value(value).zero_point) *
              layer.added_multiplier;
    }
    const std::int32_t level =
        requantize(static_cast<std::int32_t>(sum), multiplier, added, layer.output);
    return node.relu ? std::max(level, zero) : level;
  }

  const Int8Model& model_;
  std::vector<std::vector<std::int32_t>> values_;
  std::vector<float> logits_;
};

}  // namespace

TEST_CASE("quantize: integers in floating point are those of the definition, bit for bit") {
  for (const Convention convention : {Convention::kMaxAbs, Convention::kAffine})
    for (const Granularity granularity : {Granularity::kTensor, Granularity::kChannel}) {
      const FloatModel model = random_model("lenet", 11);
      WeightScheme scheme;
      scheme.convention = convention;
      scheme.granularity = granularity;
      const Int8Model quantized =
          quantize_model(model, scheme, quantizers_for(model.plan, convention));
      const std::vector<float> images = random_images(3), logits = logits_of(quantized, images);
      Definition definition(quantized);
      for (std::size_t image = 0; image < 3; ++image)
        CHECK(definition.run(images.data() + image * 3072) ==
              std::vector<float>(logits.begin() + static_cast<std::ptrdiff_t>(image * 10),
                                 logits.begin() + static_cast<std::ptrdiff_t>(image * 10 + 10)));
    }
}

TEST_CASE("quantize: a bias of many units needs no room beside the sums") {
  FloatModel model = random_model("lenet", 11);
  const Node& first = model.plan.nodes.front();
  const std::size_t of_channel = first.weights() / first.out_channels;
  std::fill_n(model.layers.front().weights.begin(), of_channel, 0.0f);  // its scale is the least
  model.layers.front().bias.resize(first.out_channels);
  model.layers.front().bias.front() = 0.5f;
  const Int8Model quantized =
      quantize_model(model, WeightScheme(), quantizers_for(model.plan, Convention::kMaxAbs));
  REQUIRE(std::abs(quantized.layers.front().bias.front()) >= 1 << 24);
  const std::vector<float> images = random_images(1);
  Definition definition(quantized);
  CHECK(definition.run(images.data()) == logits_of(quantized, images));
}

TEST_CASE("quantize: shortcuts, strides, padding and means too") {
  for (const Convention convention : {Convention::kMaxAbs, Convention::kAffine}) {
    FloatModel model = random_model("resnet18", 12);
    // The same network, narrower: the definition is slow.
    for (std::size_t i = 0; i < model.plan.nodes.size(); ++i) {
      Node& node = model.plan.nodes[i];
      if (i + 1 < model.plan.nodes.size()) node.out_channels /= 16;
      if (i > 0) node.in_channels /= 16;
      model.layers[i].weights.resize(node.kind == NodeKind::kConvolution ? node.weights() : 0);
      if (!model.layers[i].bias.empty()) model.layers[i].bias.resize(node.out_channels);
    }
    WeightScheme scheme;
    scheme.convention = convention;
    const Int8Model quantized =
        quantize_model(model, scheme, quantizers_for(model.plan, convention));
    const std::vector<float> images = random_images(1);
    Definition definition(quantized);
    CHECK(definition.run(images.data()) == logits_of(quantized, images));
  }
}

TEST_CASE("quantize: a batch gives what its images give alone") {
  const FloatModel model = random_model("lenet", 13);
  const Int8Model quantized =
      quantize_model(model, {}, quantizers_for(model.plan, Convention::kAffine));
  const std::vector<float> images = random_images(19), together = logits_of(quantized, images);
  for (std::size_t image = 0; image < 19; ++image) {
    const auto first = images.begin() + static_cast<std::ptrdiff_t>(image * 3072);
    const std::vector<float> alone = logits_of(quantized, {first, first + 3072});
    CHECK(std::equal(alone.begin(), alone.end(),
                     together.begin() + static_cast<std::ptrdiff_t>(image * 10)));
  }
}
