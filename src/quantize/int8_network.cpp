#include "quantize/int8_network.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace gradsync::quantize {

namespace {

std::uint8_t zero_byte(const Quantizer& by) {
  return static_cast<std::uint8_t>(kByteOffset + by.zero_point);
}

/// What a mean needs of PackedLayer.
PackedLayer pack_mean(const Int8Model& model, std::size_t node) {
  const Int8Layer& layer = model.layers[node];
  PackedLayer packed;
  packed.multipliers = layer.multipliers;
  packed.low = static_cast<float>(layer.output.low - layer.output.zero_point);
  packed.high = static_cast<float>(layer.output.high - layer.output.zero_point);
  packed.zero_byte = zero_byte(layer.output);
  const Node& of = model.plan.nodes[node];
  packed.sum_offset =
      static_cast<std::int32_t>(of.kernel * of.kernel) * zero_byte(model.of_value(of.input));
  return packed;
}

/// The larger bytes of `into` and `other`, both of `count`.
void keep_larger(std::uint8_t* into, const std::uint8_t* other, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    into[i] = std::max(into[i], other[i]);
}

}  // namespace

Int8Network::Int8Network(const Int8Model& model, bool portable)
    : plan_(model.plan),
      kernel_(!portable && has_vnni() ? convolve_vnni : convolve_portable),
      input_(model.input) {
  for (std::size_t value = 0; value < plan_.nodes.size(); ++value) {
    Value one;
    one.side = value == 0 ? plan_.nodes[0].in_side : plan_.nodes[value - 1].out_side;
    one.channels = value == 0 ? plan_.nodes[0].in_channels : plan_.nodes[value - 1].out_channels;
    one.border = plan_.border(value);
    one.bytes.assign(kTogether * one.image_bytes() + kSlackBytes, zero_byte(model.of_value(value)));
    values_.push_back(std::move(one));
  }
  for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
    const NodeKind kind = plan_.nodes[i].kind;
    layers_.push_back(kind == NodeKind::kConvolution ? pack_layer(model, i)
                      : kind == NodeKind::kMeanPool  ? pack_mean(model, i)
                                                     : PackedLayer());
  }
}

std::string Int8Network::kernel_name() const {
  return kernel_ == convolve_vnni ? "AVX-512 VNNI" : "portable";
}

void Int8Network::run(std::span<const float> images, std::span<float> logits) {
  const Value& input = values_[0];
  const std::size_t floats = input.side * input.side * input.channels;
  const std::size_t count = logits.size() / classes();
  if (images.size() != count * floats || logits.size() != count * classes())
    throw Error(ExitCode::kInternal, "images and logits of different numbers");
  for (std::size_t first = 0; first < count; first += kTogether) {
    const std::size_t together = std::min(kTogether, count - first);
    run_together(images.subspan(first * floats, together * floats), together,
                 logits.data() + first * classes());
  }
}

void Int8Network::run_together(std::span<const float> images, std::size_t count, float* logits) {
  quantize_images(images, count);
  for (std::size_t node = 0; node < plan_.nodes.size(); ++node)
    switch (plan_.nodes[node].kind) {
      case NodeKind::kConvolution:
        convolve(node, count, logits);
        break;
      case NodeKind::kMaxPool:
        max_pool(node, count);
        break;
      case NodeKind::kMeanPool:
        mean_pool(node, count);
        break;
    }
}

void Int8Network::quantize_images(std::span<const float> images, std::size_t count) {
  Value& value = values_[0];
  const float inverse = 1.0f / input_.scale;
  const auto low = static_cast<float>(input_.low - input_.zero_point);
  const auto high = static_cast<float>(input_.high - input_.zero_point);
  const std::int32_t offset = kByteOffset + input_.zero_point;
  const std::size_t row_floats = value.side * value.channels;
  const float* from = images.data();
  for (std::size_t row = 0; row < count * value.side; ++row, from += row_floats) {
    std::uint8_t* to =
        value.bytes.data() + row / value.side * value.image_bytes() + value.at(row % value.side, 0);
    for (std::size_t i = 0; i < row_floats; ++i) {
      const float level = std::nearbyint(std::min(std::max(from[i] * inverse, low), high));
      to[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(level) + offset);
    }
  }
}

// The weights of a few blocks stay in the cache while all images of the group go by.
void Int8Network::convolve(std::size_t node, std::size_t count, float* logits) {
  const std::size_t blocks = layers_[node].blocks;
  for (std::size_t first = 0; first < blocks; first += kBlocksAtOnce)
    convolve_blocks(node, count, first, std::min(first + kBlocksAtOnce, blocks), logits);
}

void Int8Network::convolve_blocks(std::size_t node_number, std::size_t count, std::size_t first,
                                  std::size_t last, float* logits) {
  const Node& node = plan_.nodes[node_number];
  const bool ends = node_number + 1 == plan_.nodes.size();
  const Value& input = values_[node.input];
  Value* output = ends ? nullptr : &values_[node_number + 1];
  const Value* added = node.added < 0 ? nullptr : &values_[static_cast<std::size_t>(node.added)];
  Tile tile;
  tile.row_stride = input.row_bytes();
  const auto flush = [&] {
    for (std::size_t i = tile.count; i < kTile; ++i)
      tile.input[i] = tile.input[0];
    kernel_(layers_[node_number], tile, first, last);
    tile.count = 0;
  };
  const std::size_t inset = input.border - node.padding;
  for (std::size_t image = 0; image < count; ++image) {
    const std::uint8_t* from = input.bytes.data() + image * input.image_bytes();
    for (std::size_t row = 0; row < node.out_side; ++row)
      for (std::size_t column = 0; column < node.out_side; ++column) {
        const std::size_t i = tile.count++;
        tile.input[i] = from + (row * node.stride + inset) * input.row_bytes() +
                        (column * node.stride + inset) * input.channels;
        tile.logits[i] = logits + image * node.out_channels;
        if (output)
          tile.output[i] =
              output->bytes.data() + image * output->image_bytes() + output->at(row, column);
        if (added)
          tile.added[i] =
              added->bytes.data() + image * added->image_bytes() + added->at(row, column);
        if (tile.count == kTile) flush();
      }
  }
  if (tile.count > 0) flush();
}

void Int8Network::max_pool(std::size_t node_number, std::size_t count) {
  const Node& node = plan_.nodes[node_number];
  const Value& input = values_[node.input];
  Value& output = values_[node_number + 1];
  std::vector<std::uint8_t> larger(input.side * input.channels);
  for (std::size_t row = 0; row < count * node.out_side; ++row) {
    const std::size_t image = row / node.out_side, out_row = row % node.out_side;
    const std::uint8_t* from =
        input.bytes.data() + image * input.image_bytes() + input.at(out_row * node.kernel, 0);
    std::copy_n(from, larger.size(), larger.begin());
    for (std::size_t k = 1; k < node.kernel; ++k)
      keep_larger(larger.data(), from + k * input.row_bytes(), larger.size());
    std::uint8_t* to = output.bytes.data() + image * output.image_bytes() + output.at(out_row, 0);
    for (std::size_t column = 0; column < node.out_side; ++column, to += output.channels) {
      const std::uint8_t* pixel = larger.data() + column * node.kernel * input.channels;
      std::copy_n(pixel, output.channels, to);
      for (std::size_t k = 1; k < node.kernel; ++k)
        keep_larger(to, pixel + k * input.channels, output.channels);
    }
  }
}

void Int8Network::mean_pool(std::size_t node_number, std::size_t count) {
  const Node& node = plan_.nodes[node_number];
  const PackedLayer& layer = layers_[node_number];
  const Value& input = values_[node.input];
  Value& output = values_[node_number + 1];
  for (std::size_t image = 0; image < count; ++image)
    for (std::size_t channel = 0; channel < node.out_channels; ++channel) {
      std::int32_t sum = -layer.sum_offset;
      for (std::size_t row = 0; row < node.in_side; ++row)
        for (std::size_t column = 0; column < node.in_side; ++column)
          sum += input.bytes[image * input.image_bytes() + input.at(row, column) + channel];
      const float value = static_cast<float>(sum) * layer.multipliers[0];
      const auto level =
          static_cast<std::int32_t>(std::nearbyint(std::clamp(value, layer.low, layer.high)));
      output.bytes[image * output.image_bytes() + output.at(0, 0) + channel] =
          static_cast<std::uint8_t>(level + layer.zero_byte);
    }
}

std::size_t predicted(std::span<const float> logits) {
  return static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace gradsync::quantize
