// SPDX-License-Identifier: BSD-3-Clause
#include "base/hash.h"
#include "model/replica.h"

namespace gradsync {

std::int64_t Replica::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& parameter : parameters)
    count += parameter.numel();
  return count;
}

std::vector<std::size_t> Replica::parameters_of(const torch::nn::Module& module) const {
  std::vector<std::size_t> indices;
  for (const torch::Tensor& parameter : module.parameters())
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (parameters[i].is_same(parameter)) indices.push_back(i);
  return indices;
}

Replica make_replica(const std::string& model, std::uint64_t seed, Layout layout,
                     const torch::Device& device) {
  Replica replica;
  replica.network = make_network(model, seed);
  if (!device.is_cpu()) replica.network->to(device);
  for (auto& item : replica.network->named_parameters()) {
    torch::Tensor& parameter = item.value();
    // The C++ Module::to has no memory format.
    if (layout == Layout::kNhwc && parameter.dim() == 4)
      parameter.set_data(parameter.data().contiguous(at::MemoryFormat::ChannelsLast));
    replica.parameters.push_back(parameter);
    replica.names.push_back(item.key());
  }
  for (auto& item : replica.network->named_buffers()) {
    replica.buffers.push_back(item.value());
    replica.buffer_names.push_back(item.key());
  }
  return replica;
}

torch::Tensor flat_parameters(const Replica& replica) {
  std::vector<torch::Tensor> pieces;
  for (const auto& parameter : replica.parameters)
    pieces.push_back(parameter.detach().reshape({-1}));
  return torch::cat(pieces).cpu();
}

torch::Tensor flat_buffers(const Replica& replica) {
  std::vector<torch::Tensor> pieces;
  for (const auto& buffer : replica.buffers)
    if (buffer.is_floating_point()) pieces.push_back(buffer.detach().reshape({-1}));
  return pieces.empty() ? torch::empty({0}) : torch::cat(pieces).cpu();
}

namespace {

/// SHA-256 of the values' bytes, 16 hex digits.
std::string short_hash(const torch::Tensor& values) {
  Sha256 hash;
  hash.update(
      std::as_bytes(std::span(values.data_ptr<float>(), static_cast<std::size_t>(values.numel()))));
  return hash.hex().substr(0, 16);
}

}  // namespace

std::string parameter_hash(const Replica& replica) {
  return short_hash(flat_parameters(replica));
}

std::string buffer_hash(const Replica& replica) {
  const torch::Tensor flat = flat_buffers(replica);
  return flat.numel() == 0 ? "" : short_hash(flat);
}

}  // namespace gradsync
