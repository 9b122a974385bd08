#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

namespace gradsync {

/// A network for images [N, 3, 32, 32]; forward returns logits [N, classes].
class Network : public torch::nn::Module {
 public:
  using Gate = std::function<void(const torch::nn::Module& part)>;

  virtual torch::Tensor forward(torch::Tensor images) = 0;

  /// From now on a forward pass calls `gate` with each layer, or block of layers, before it reads
  /// its parameters: every parameter is in one of them. Empty: nothing is called.
  void set_gate(Gate gate) { gate_ = std::move(gate); }

 protected:
  /// The forward pass has come to this part, and returns it.
  template <typename Part>
  Part& at(Part& part) const {
    if (gate_) gate_(*part);
    return part;
  }

 private:
  Gate gate_;
};

/// A new network with LibTorch's initialization, drawn from `seed`: equal on every rank.
/// Throws Error kUsage for an unknown name.
std::shared_ptr<Network> make_network(const std::string& name, std::uint64_t seed);

#define GRADSYNC_NETWORK(id, name) std::shared_ptr<Network> make_##id();
#include "options/networks.def"
#undef GRADSYNC_NETWORK

}  // namespace gradsync
