// SPDX-License-Identifier: BSD-3-Clause
#include <torch/nn/modules/container/sequential.h>

#include "base/error.h"
#include "model/network.h"

namespace gradsync {

namespace {

struct Entry {
  const char* form;
  std::shared_ptr<Network> (*make)(const std::string& model);
};

constexpr Entry kNetworks[] = {
#define GRADSYNC_NETWORK(id, form, input, check) {form, make_##id},
#include "options/networks.def"
#undef GRADSYNC_NETWORK
};

bool is_block(const torch::nn::Module& module) {
  return dynamic_cast<const Gated*>(&module) != nullptr;
}

void add_layers(const torch::nn::Module& parent, const torch::nn::Module* block,
                std::vector<Network::Layer>& layers) {
  for (const auto& child : parent.children()) {
    const torch::nn::Module* within = block == nullptr && is_block(*child) ? child.get() : block;
    if (is_block(*child) || child->as<torch::nn::SequentialImpl>() != nullptr)
      add_layers(*child, within, layers);
    else if (!child->parameters().empty())
      layers.push_back({child.get(), within == nullptr ? child.get() : within});
  }
}

}  // namespace

torch::Tensor Gated::through(torch::nn::SequentialImpl& parts, torch::Tensor x) const {
  for (torch::nn::AnyModule& one : parts) {
    const auto part = one.ptr();
    if (gated() && !is_block(*part) && !part->parameters().empty()) at(part);
    x = one.forward(std::move(x));
  }
  return x;
}

void Network::set_gate(Gate gate) {
  own_gate_ = std::move(gate);
  if (gate_ != nullptr) return;
  for (const auto& module : modules())
    if (auto* part = dynamic_cast<Gated*>(module.get())) part->gate_ = &own_gate_;
}

std::vector<Network::Layer> Network::layers() const {
  std::vector<Layer> layers;
  add_layers(*this, nullptr, layers);
  return layers;
}

std::shared_ptr<Network> make_network(const std::string& model, std::uint64_t seed) {
  for (const Entry& entry : kNetworks)
    if (is_network(entry.form, model)) {
      torch::manual_seed(seed);
      return entry.make(model);
    }
  throw Error(ExitCode::kUsage, "no network is called " + model,
              "gradsync-train --help lists them");
}

}  // namespace gradsync
