// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "sync/buckets.h"
#include "sync/flat_gradients.h"

namespace gradsync {

namespace {

constexpr std::int64_t kVectorValues = 4;  // 16 bytes
constexpr std::int64_t kFewValues = 16 << 10;
constexpr std::size_t kGroupValues = GradientLayout::kGroupBytes / sizeof(float);

}  // namespace

torch::Tensor place_of(const torch::Tensor& parameter, GradientLayout::Part part,
                       const torch::Tensor& flat) {
  return flat.as_strided(parameter.sizes(), parameter.strides(),
                         flat.storage_offset() + static_cast<std::int64_t>(part.offset));
}

torch::Tensor zeros_in(std::shared_ptr<std::byte> memory, std::int64_t count,
                       const torch::Device& device) {
  if (!memory) return torch::zeros({count}, torch::TensorOptions(device));
  auto* values = reinterpret_cast<float*>(memory.get());
  return torch::from_blob(values, {count}, [held = std::move(memory)](void*) {}).zero_();
}

torch::Tensor zeros_in(Exchange& exchange, std::int64_t count, const torch::Device& device) {
  return zeros_in(exchange.allocate(static_cast<std::size_t>(count) * sizeof(float)), count,
                  device);
}

void move_parameters(Replica& replica, const GradientLayout& layout, const torch::Tensor& flat) {
  for (std::size_t i = 0; i < replica.parameters.size(); ++i) {
    torch::Tensor& parameter = replica.parameters[i];
    const torch::Tensor place = place_of(parameter, layout.gradient(i), flat);
    place.copy_(parameter.data());
    parameter.set_data(place);
  }
}

GradientLayout::GradientLayout(const Replica& replica,
                               const std::vector<std::vector<std::size_t>>& groups,
                               std::size_t parts)
    : gradients_(replica.parameters.size()) {
  for (const auto& group : groups) {
    const std::size_t begin = values_;
    for (const bool odd : {false, true})
      for (const std::size_t parameter : group)
        if ((replica.parameters[parameter].numel() % kVectorValues != 0) == odd)
          place(replica, parameter);
    values_ = begin + (values_ - begin + parts - 1) / parts * parts;
    groups_.push_back({begin, values_ - begin});
    values_ = (values_ + kGroupValues - 1) / kGroupValues * kGroupValues;
  }
}

void GradientLayout::place(const Replica& replica, std::size_t parameter) {
  const auto count = static_cast<std::size_t>(replica.parameters[parameter].numel());
  gradients_[parameter] = {values_, count};
  values_ += count;
}

std::vector<std::vector<std::size_t>> buckets_of(const Replica& replica,
                                                 std::int64_t first_bucket_bytes,
                                                 std::int64_t bucket_cap_bytes) {
  std::vector<std::int64_t> bytes;
  for (auto one = replica.parameters.rbegin(); one != replica.parameters.rend(); ++one)
    bytes.push_back(static_cast<std::int64_t>(one->nbytes()));
  std::vector<std::vector<std::size_t>> buckets;
  for (const Bucket& bucket : cut_into_buckets(bytes, first_bucket_bytes, bucket_cap_bytes)) {
    buckets.emplace_back();
    for (std::size_t position = bucket.first; position < bucket.last; ++position)
      buckets.back().push_back(bytes.size() - 1 - position);
  }
  return buckets;
}

std::vector<std::vector<std::size_t>> units_of(const Replica& replica, bool blocks) {
  std::vector<std::vector<std::size_t>> units;
  const torch::nn::Module* last = nullptr;
  for (const Network::Layer& layer : replica.network->layers()) {
    const std::vector<std::size_t> parameters = replica.parameters_of(*layer.module);
    const auto* unit = blocks ? layer.block : layer.module;
    const bool joins =
        unit == layer.module && std::ranges::all_of(parameters, [&](std::size_t i) {
          return replica.parameters[i].dim() < 2 && replica.parameters[i].numel() <= kFewValues;
        });
    if (units.empty() || (unit != last && !joins)) {
      units.emplace_back();
      last = unit;
    }
    units.back().insert(units.back().end(), parameters.begin(), parameters.end());
  }
  return units;
}

GradientLayout one_group(const Replica& replica) {
  return {replica, {module_order(replica.parameters.size())}};
}

FlatGradients::FlatGradients(Replica& replica) : FlatGradients(replica, one_group(replica)) {}

FlatGradients::FlatGradients(Replica& replica, const GradientLayout& layout)
    : FlatGradients(replica, layout,
                    zeros_in(nullptr, layout.values(), replica.parameters[0].device())) {}

FlatGradients::FlatGradients(Replica& replica, const GradientLayout& layout, Exchange& exchange)
    : FlatGradients(replica, layout,
                    zeros_in(exchange, layout.values(), replica.parameters[0].device())) {}

FlatGradients::FlatGradients(Replica& replica, const GradientLayout& layout,
                             const torch::Tensor& flat)
    : layout_(layout), flat_(std::make_shared<torch::Tensor>(flat)) {
  for (std::size_t i = 0; i < replica.parameters.size(); ++i) {
    torch::Tensor& parameter = replica.parameters[i];
    torch::Tensor view = place_of(parameter, layout_.gradient(i), flat);
    if (parameter.grad().defined()) view.copy_(parameter.grad());
    parameter.mutable_grad() = view;
  }
}

std::span<float> FlatGradients::values(GradientLayout::Part part) {
  return {flat_->data_ptr<float>() + part.offset, part.count};
}

Message FlatGradients::mean(std::size_t group, ValueType wire) {
  Message message{Collective::all_reduce(this->group(group), Scale::kAverage)};
  message.call.wire = wire;
  message.memory = flat_;
  return message;
}

std::vector<std::size_t> checked_order(std::span<const std::int64_t> order, std::size_t count) {
  std::vector<bool> seen(count, false);
  for (const std::int64_t parameter : order)
    if (parameter >= 0 && static_cast<std::size_t>(parameter) < count)
      seen[static_cast<std::size_t>(parameter)] = true;
  if (order.size() != count || std::find(seen.begin(), seen.end(), false) != seen.end())
    throw Error(ExitCode::kBadData, "the checkpoint's order of buckets does not fit this network");
  return {order.begin(), order.end()};
}

std::vector<std::size_t> module_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

}  // namespace gradsync
