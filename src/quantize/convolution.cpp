#include "quantize/convolution.h"

#include <algorithm>
#include <cmath>

namespace gradsync::quantize {

namespace {

/// The weights of one channel and the sums that fold the offsets of its input into its start.
void pack_channel(const Int8Model& model, std::size_t node_number, std::size_t channel,
                  PackedLayer& packed) {
  const Node& node = model.plan.nodes[node_number];
  const Int8Layer& layer = model.layers[node_number];
  const std::size_t block = channel / kLanes, lane = channel % kLanes;
  const std::int8_t* weights =
      layer.weights.values.data() + channel * packed.rows * packed.row_bytes;
  std::int32_t sum = 0;
  for (std::size_t row = 0; row < packed.rows; ++row)
    for (std::size_t i = 0; i < packed.row_bytes; ++i) {
      const std::int8_t weight = weights[row * packed.row_bytes + i];
      const std::size_t group = (block * packed.rows + row) * packed.row_groups + i / kGroupBytes;
      packed.weights[(group * kLanes + lane) * kGroupBytes + i % kGroupBytes] = weight;
      sum += weight;
    }
  const std::int32_t input_byte = kByteOffset + model.of_value(node.input).zero_point;
  const std::int32_t bias = layer.bias.empty() ? 0 : layer.bias[channel];
  packed.start[channel] = bias - input_byte * sum;
  packed.multipliers[channel] = layer.multipliers[channel];
}

void pack_zero_points(const Int8Model& model, std::size_t node_number, PackedLayer& packed) {
  const auto& weights = model.layers[node_number].weights;
  const bool any = std::any_of(weights.quantizers.begin(), weights.quantizers.end(),
                               [](const Quantizer& by) { return by.zero_point != 0; });
  if (!any) return;
  packed.weight_zero_points.assign(packed.blocks * kLanes, 0);
  for (std::size_t c = 0; c < packed.channels; ++c)
    packed.weight_zero_points[c] = weights.of_channel(c).zero_point;
  const std::int32_t input_byte =
      kByteOffset + model.of_value(model.plan.nodes[node_number].input).zero_point;
  packed.sum_offset = static_cast<std::int32_t>(packed.rows * packed.row_bytes) * input_byte;
}

void pack_output(const Int8Model& model, std::size_t node_number, PackedLayer& packed) {
  const Node& node = model.plan.nodes[node_number];
  const Int8Layer& layer = model.layers[node_number];
  const Quantizer& output = layer.output;
  packed.low = node.relu ? 0.0f : static_cast<float>(output.low - output.zero_point);
  packed.high = static_cast<float>(output.high - output.zero_point);
  packed.zero_byte = kByteOffset + output.zero_point;
  packed.added_multiplier = layer.added_multiplier;
  if (node.added >= 0)
    packed.added_zero_byte =
        kByteOffset + model.of_value(static_cast<std::size_t>(node.added)).zero_point;
}

using Accumulators = std::array<std::int32_t, kLanes>;

Accumulators accumulate(const PackedLayer& layer, const Tile& tile, std::size_t pixel,
                        std::size_t block) {
  Accumulators sums{};
  std::copy_n(layer.start.begin() + static_cast<std::ptrdiff_t>(block * kLanes), kLanes,
              sums.begin());
  const std::int8_t* weights = layer.weights.data() + block * layer.block_bytes();
  for (std::size_t row = 0; row < layer.rows; ++row)
    for (std::size_t group = 0; group < layer.row_groups; ++group) {
      const std::uint8_t* bytes = tile.input[pixel] + row * tile.row_stride + group * kGroupBytes;
      for (std::size_t lane = 0; lane < kLanes; ++lane)
        for (std::size_t i = 0; i < kGroupBytes; ++i)
          sums[lane] += weights[lane * kGroupBytes + i] * bytes[i];
      weights += kLanes * kGroupBytes;
    }
  return sums;
}

void put(const PackedLayer& layer, const Tile& tile, std::size_t pixel, std::size_t channel,
         std::int32_t accumulator) {
  float value = static_cast<float>(accumulator) * layer.multipliers[channel];
  if (tile.output[pixel] == nullptr) {
    tile.logits[pixel][channel] = value;
    return;
  }
  if (tile.added[pixel] != nullptr)
    value += static_cast<float>(tile.added[pixel][channel] - layer.added_zero_byte) *
             layer.added_multiplier;
  value = std::nearbyint(std::clamp(value, layer.low, layer.high));
  tile.output[pixel][channel] =
      static_cast<std::uint8_t>(static_cast<std::int32_t>(value) + layer.zero_byte);
}

}  // namespace

PackedLayer pack_layer(const Int8Model& model, std::size_t node_number) {
  const Node& node = model.plan.nodes[node_number];
  PackedLayer packed;
  packed.rows = node.kernel;
  packed.row_bytes = node.kernel * node.in_channels;
  packed.row_groups = (packed.row_bytes + kGroupBytes - 1) / kGroupBytes;
  packed.channels = node.out_channels;
  packed.blocks = (node.out_channels + kLanes - 1) / kLanes;
  packed.weights.assign(packed.blocks * packed.block_bytes(), 0);
  packed.start.assign(packed.blocks * kLanes, 0);
  packed.multipliers.assign(packed.blocks * kLanes, 0);
  for (std::size_t c = 0; c < node.out_channels; ++c)
    pack_channel(model, node_number, c, packed);
  pack_zero_points(model, node_number, packed);
  pack_output(model, node_number, packed);
  return packed;
}

std::int32_t sum_of_seen(const PackedLayer& layer, const Tile& tile, std::size_t pixel) {
  std::int32_t sum = 0;
  for (std::size_t row = 0; row < layer.rows; ++row)
    for (std::size_t i = 0; i < layer.row_bytes; ++i)
      sum += tile.input[pixel][row * tile.row_stride + i];
  return sum - layer.sum_offset;
}

void convolve_portable(const PackedLayer& layer, const Tile& tile, std::size_t first,
                       std::size_t last) {
  for (std::size_t pixel = 0; pixel < tile.count; ++pixel) {
    const bool shifted = !layer.weight_zero_points.empty();
    const std::int32_t seen = shifted ? sum_of_seen(layer, tile, pixel) : 0;
    for (std::size_t block = first; block < last; ++block) {
      const Accumulators sums = accumulate(layer, tile, pixel, block);
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const std::size_t channel = block * kLanes + lane;
        if (channel >= layer.channels) break;
        const std::int32_t shift = shifted ? layer.weight_zero_points[channel] * seen : 0;
        put(layer, tile, pixel, channel, sums[lane] - shift);
      }
    }
  }
}

}  // namespace gradsync::quantize
