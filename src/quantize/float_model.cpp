// SPDX-License-Identifier: BSD-3-Clause
#include "quantize/float_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_info.h"
#include "options/modes.h"

namespace gradsync::quantize {

namespace {

using Shape = std::vector<std::int64_t>;

const std::string kParameters = "parameters/", kBuffers = "buffers/";

/// Takes tensors out of one checkpoint, and knows which are left.
class Source {
 public:
  Source(const CheckpointFile& file, const std::string& model) : file_(file), model_(model) {
    for (const TensorPlace& place : file.tensors())
      if (place.info.name.starts_with(kParameters)) left_.insert(place.info.name);
  }

  std::vector<float> take(const std::string& name, const Shape& shape) {
    const TensorPlace* place = file_.find(name);
    if (place == nullptr) refuse(fmt::format("it has no '{}'", name));
    if (place->info.dtype != "F32" || place->info.shape != shape)
      refuse(fmt::format("'{}' is {} [{}], not F32 [{}]", name, place->info.dtype,
                         fmt::join(place->info.shape, ", "), fmt::join(shape, ", ")));
    const std::vector<std::byte> bytes = trained_bytes(file_, *place);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    require_finite(values, name);
    left_.erase(name);
    return values;
  }

  void require_empty() const {
    if (!left_.empty()) refuse(fmt::format("{} has no '{}'", model_, *left_.begin()));
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ExitCode::kBadData,
                fmt::format("checkpoint '{}' is not of {}: {}", file_.path().string(), model_, why),
                "give the checkpoint of this network, or another --model");
  }

  void require_finite(const std::vector<float>& values, const std::string& name) const {
    const auto bad = std::find_if(values.begin(), values.end(),
                                  [](float value) { return !std::isfinite(value); });
    if (bad == values.end()) return;
    throw Error(ExitCode::kBadData,
                fmt::format("checkpoint '{}': value {} of '{}' is {}", file_.path().string(),
                            bad - values.begin(), name, *bad),
                "the training diverged: take an earlier checkpoint, or train with a lower --lr");
  }

  const CheckpointFile& file_;
  std::string model_;
  std::set<std::string> left_;
};

/// [out][in][row][column] to [out][row][column][in].
std::vector<float> channels_last(const std::vector<float>& weights, const Node& node) {
  const std::size_t in = node.in_channels, plane = node.kernel * node.kernel;
  std::vector<float> result(weights.size());
  for (std::size_t out = 0; out < node.out_channels; ++out)
    for (std::size_t channel = 0; channel < in; ++channel)
      for (std::size_t place = 0; place < plane; ++place)
        result[(out * plane + place) * in + channel] =
            weights[(out * in + channel) * plane + place];
  return result;
}

Shape weight_shape(const Node& node) {
  const auto size = [](std::size_t value) { return static_cast<std::int64_t>(value); };
  if (node.linear)
    return {size(node.out_channels), size(node.in_channels * node.kernel * node.kernel)};
  return {size(node.out_channels), size(node.in_channels), size(node.kernel), size(node.kernel)};
}

FloatLayer read_layer(Source& source, const Node& node) {
  const Shape channels = {static_cast<std::int64_t>(node.out_channels)};
  const std::string name = kParameters + node.parameters;
  FloatLayer layer;
  layer.weights = channels_last(source.take(name + ".weight", weight_shape(node)), node);
  if (node.biased) layer.bias = source.take(name + ".bias", channels);
  if (node.norm.empty()) return layer;
  BatchNormValues norm;
  norm.weight = source.take(kParameters + node.norm + ".weight", channels);
  norm.bias = source.take(kParameters + node.norm + ".bias", channels);
  norm.mean = source.take(kBuffers + node.norm + ".running_mean", channels);
  norm.variance = source.take(kBuffers + node.norm + ".running_var", channels);
  fold(layer, norm);
  return layer;
}

}  // namespace

void fold(FloatLayer& layer, const BatchNormValues& norm) {
  const std::size_t channels = norm.weight.size(), length = layer.weights.size() / channels;
  if (layer.bias.empty()) layer.bias.assign(channels, 0);
  for (std::size_t c = 0; c < channels; ++c) {
    const double gain = static_cast<double>(norm.weight[c]) /
                        std::sqrt(static_cast<double>(norm.variance[c]) + norm.epsilon);
    for (std::size_t i = c * length; i < (c + 1) * length; ++i)
      layer.weights[i] = static_cast<float>(static_cast<double>(layer.weights[i]) * gain);
    const double shift = static_cast<double>(layer.bias[c]) - static_cast<double>(norm.mean[c]);
    layer.bias[c] = static_cast<float>(shift * gain + static_cast<double>(norm.bias[c]));
  }
}

std::vector<std::byte> trained_bytes(const CheckpointFile& checkpoint, const TensorPlace& tensor) {
  const auto root = checkpoint.bytes(tensor);
  std::vector<std::byte> bytes(root.begin(), root.end());
  const std::string& name = tensor.info.name;
  const TextMap& metadata = checkpoint.metadata();
  const auto mode = metadata.find("option.sync");
  if (mode == metadata.end() || !name.starts_with(kParameters) || tensor.info.dtype != "F32")
    return bytes;
  const Mode& how = mode_named(mode->second);
  if (!how.local || !how.exchanges) return bytes;
  constexpr std::int64_t kMostRanks = 1'000'000;
  const std::int64_t ranks = from_metadata(metadata).ranks;
  if (ranks < 1 || ranks > kMostRanks)
    throw Error(ExitCode::kBadData,
                fmt::format("checkpoint '{}' states {} as its number of ranks",
                            checkpoint.path().string(), ranks),
                "give a checkpoint that gradsync-train made");
  std::vector<float> values(bytes.size() / sizeof(float));
  std::vector<double> sum(values.size());
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const TensorPlace* own =
        rank == 0 ? &tensor : checkpoint.find(fmt::format("rank{}/{}", rank, name));
    const auto of_rank = checkpoint.bytes(own == nullptr ? tensor : *own);  // else as rank 0's
    if (of_rank.size() != bytes.size())
      throw Error(ExitCode::kBadData,
                  fmt::format("checkpoint '{}': '{}' of rank {} is of another size",
                              checkpoint.path().string(), name, rank));
    std::memcpy(values.data(), of_rank.data(), of_rank.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      sum[i] += static_cast<double>(values[i]) / static_cast<double>(ranks);
  }
  std::copy(sum.begin(), sum.end(), values.begin());
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

FloatModel read_float_model(const CheckpointFile& checkpoint, Plan plan) {
  Source source(checkpoint, plan.model);
  FloatModel model{std::move(plan), {}};
  for (std::size_t i = 0; i < model.plan.nodes.size(); ++i)
    model.layers.push_back(model.plan.weighted(i) ? read_layer(source, model.plan.nodes[i])
                                                  : FloatLayer());
  source.require_empty();
  return model;
}

std::string model_of(const CheckpointFile& checkpoint) {
  const auto found = checkpoint.metadata().find("option.model");
  if (found == checkpoint.metadata().end())
    throw Error(
        ExitCode::kBadData,
        fmt::format("checkpoint '{}' does not name its network", checkpoint.path().string()),
        "give a checkpoint that gradsync-train made");
  return found->second;
}

std::int64_t float_bytes(const CheckpointFile& checkpoint) {
  std::int64_t bytes = 0;
  for (const TensorPlace& place : checkpoint.tensors())
    if (place.info.dtype == "F32" &&
        (place.info.name.starts_with(kParameters) || place.info.name.starts_with(kBuffers)))
      bytes += static_cast<std::int64_t>(place.end - place.begin);
  return bytes;
}

std::filesystem::path checkpoint_at(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return path;
  const auto found = checkpoints_in(path);
  if (found.empty())
    throw Error(ExitCode::kNoInput, fmt::format("'{}' holds no checkpoint", path.string()),
                "train with --checkpoint-every end, which leaves one when the training ends");
  return found.front().path;
}

}  // namespace gradsync::quantize
