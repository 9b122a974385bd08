#include "quantize/int8_file.h"

#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "checkpoint/checkpoint_file.h"

namespace gradsync::quantize {

namespace {

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

void write_int8_model(const Int8Model& model, TextMap metadata, const std::filesystem::path& file) {
  if (std::filesystem::exists(std::filesystem::symlink_status(file)))
    throw Error(ExitCode::kCannotCreate, fmt::format("'{}' exists", file.string()),
                "choose another --save; nothing is overwritten");
  TensorList list;
  add_quantizer(list, "input.", model.input);
  for (std::size_t i = 0; i < model.plan.nodes.size(); ++i) {
    const Node& node = model.plan.nodes[i];
    if (model.plan.weighted(i)) add_weights(list, node, model.layers[i]);
    if (model.plan.rescales(i)) add_quantizer(list, node.name + ".", model.layers[i].output);
  }
  metadata["format"] = std::string(kInt8Format);
  metadata["model"] = model.plan.model;
  list.write(file, std::move(metadata));
}

}  // namespace gradsync::quantize
