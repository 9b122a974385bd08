// SPDX-License-Identifier: BSD-3-Clause
#include <memory>

#include "base/memory.h"
#include "sync/shards.h"

namespace gradsync {

Shards::Shards(Exchange& exchange, const Replica& replica,
               std::vector<std::vector<std::size_t>> groups,
               std::function<void(std::size_t group)> completed)
    : exchange_(exchange),
      replica_(replica),
      groups_(std::move(groups)),
      layout_(replica, groups_, static_cast<std::size_t>(exchange.session().size())),
      group_of_(replica.parameters.size()),
      arrives_(groups_.size()),
      missing_(groups_.size()),
      hooks_(replica.parameters, [this, completed = std::move(completed)](std::size_t parameter) {
        const std::size_t group = group_of_[parameter];
        if (in_backward_ && --missing_[group] == 0) completed(group);
      }) {
  for (std::size_t group = 0; group < size(); ++group)
    for (const std::size_t parameter : groups_[group])
      group_of_[parameter] = group;
  for (const Network::Layer& layer : replica.network->layers())
    for (const std::size_t parameter : replica.parameters_of(*layer.module))
      groups_of_layer_[layer.module].insert(group_of_[parameter]);
}

torch::Tensor Shards::view(const torch::Tensor& flat, std::size_t parameter) const {
  GradientLayout::Part part = layout_.gradient(parameter);
  part.offset -= layout_.group(group_of_[parameter]).offset;
  return place_of(replica_.parameters[parameter], part, flat);
}

torch::Tensor Shards::own(const torch::Tensor& flat, std::size_t group) const {
  const std::int64_t share = values(group) / exchange_.session().size();
  return flat.narrow(0, exchange_.session().rank() * share, share);
}

void Shards::begin_backward() {
  in_backward_ = true;
  for (std::size_t group = 0; group < size(); ++group)
    missing_[group] = groups_[group].size();
}

void Shards::gather(const torch::Tensor& flat, std::size_t group) {
  const torch::Tensor all = flat.narrow(0, 0, values(group));
  arrives_[group] = start(Collective::all_gather(std::as_bytes(values_of(own(flat, group))),
                                                 std::as_writable_bytes(values_of(all))),
                          flat, Traffic::kParameters);
}

std::uint64_t Shards::await(std::size_t group) {
  const Moment begin = exchange_.now();
  exchange_.finish(arrives_[group]);
  waits_.push_back({begin, exchange_.now()});
  return arrives_[group];
}

std::uint64_t Shards::average(const torch::Tensor& flat, std::size_t group) {
  const torch::Tensor all = flat.narrow(0, 0, values(group));
  return start(
      Collective::reduce_scatter(values_of(all), values_of(own(flat, group)), Scale::kAverage),
      flat, Traffic::kGradients);
}

torch::Tensor Shards::take_memory(std::size_t group) {
  if (const auto fits = free_.lower_bound(values(group)); fits != free_.end())
    return std::move(free_.extract(fits).mapped());
  if (!free_.empty()) free_.erase(std::prev(free_.end()));
  const torch::Device device = replica_.parameters[0].device();
  const std::size_t bytes = layout_.group(group).count * sizeof(float);
  return zeros_in(device.is_cpu() ? own_pages(bytes) : nullptr, values(group), device);
}

std::uint64_t Shards::start(const Collective& call, const torch::Tensor& flat, Traffic category) {
  return exchange_.start(
      {.call = call, .category = category, .memory = std::make_shared<torch::Tensor>(flat)},
      exchange_.now());
}

}  // namespace gradsync
