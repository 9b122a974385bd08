#include "sync/flat_gradients.h"

#include <algorithm>
#include <utility>

#include "support/error.h"

namespace gradsync {

torch::Tensor zeros_in(std::shared_ptr<std::byte> memory, std::int64_t count,
                       const torch::Device& device) {
  if (!memory) return torch::zeros({count}, torch::TensorOptions(device));
  auto* values = reinterpret_cast<float*>(memory.get());
  return torch::from_blob(values, {count}, [held = std::move(memory)](void*) {}).zero_();
}

FlatGradients::FlatGradients(Replica& replica, std::vector<std::size_t> order,
                             std::shared_ptr<std::byte> memory)
    : flat_(zeros_in(std::move(memory), replica.parameter_count(), replica.parameters[0].device())),
      order_(std::move(order)) {
  position_of_.resize(order_.size());
  std::size_t offset = 0;
  for (std::size_t position = 0; position < order_.size(); ++position) {
    torch::Tensor& parameter = replica.parameters[order_[position]];
    position_of_[order_[position]] = position;
    offset_at_.push_back(offset);
    torch::Tensor view =
        flat_.as_strided(parameter.sizes(), parameter.strides(), static_cast<std::int64_t>(offset));
    if (parameter.grad().defined()) view.copy_(parameter.grad());
    parameter.mutable_grad() = view;
    offset += static_cast<std::size_t>(parameter.numel());
  }
  offset_at_.push_back(offset);
}

std::span<float> FlatGradients::all() {
  return range(0, order_.size());
}

std::span<float> FlatGradients::of(std::size_t parameter) {
  return range(position_of_[parameter], position_of_[parameter] + 1);
}

std::span<float> FlatGradients::range(std::size_t first, std::size_t last) {
  return {flat_.data_ptr<float>() + offset_at_[first], offset_at_[last] - offset_at_[first]};
}

std::size_t gradient_bytes(const Replica& replica) {
  return static_cast<std::size_t>(replica.parameter_count()) * sizeof(float);
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
