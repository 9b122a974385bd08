// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/types.h>

#include "data/augment.h"
#include "options/networks.h"
#include "record/run.h"

namespace torch::nn {
class SequentialImpl;
}

namespace gradsync {

/// Called in a forward pass with each layer, before it reads the layer's parameters.
using Gate = std::function<void(const torch::nn::Module& layer)>;

/// A module whose forward pass calls a gate: a network, or a block of its layers.
class Gated : public torch::nn::Module {
 protected:
  /// The forward pass has come to this layer, and returns it.
  template <typename Layer>
  Layer& at(Layer& layer) const {
    if (gated()) (*gate_)(*layer);
    return layer;
  }
  /// Runs one part after the other: a layer with its gate, a block with those of its layers.
  torch::Tensor through(torch::nn::SequentialImpl& parts, torch::Tensor x) const;

 private:
  friend class Network;
  bool gated() const { return gate_ != nullptr && *gate_; }
  const Gate* gate_ = nullptr;  ///< of the network; null until it has had one
};

/// A network for samples [N, ...] of NetworkInput::sizes, in float32: images, or tokens, whose
/// numbers float32 holds exactly. forward returns logits [N, classes], of tokens [N, tokens,
/// classes].
class Network : public Gated {
 public:
  virtual torch::Tensor forward(torch::Tensor samples) = 0;

  /// Empty: nothing is called.
  void set_gate(Gate gate);

  struct Layer {
    const torch::nn::Module* module;
    const torch::nn::Module* block;  ///< the largest block that it is in; itself if in none
  };
  /// What a gate is called with: each parameter is in one of them. In the order of the modules,
  /// which need not be that of the calls; a layer may be called with twice.
  virtual std::vector<Layer> layers() const;

 private:
  Gate own_gate_;
};

/// A new network with LibTorch's initialization, drawn from `seed`: equal on every rank. A
/// TorchScript module has the parameters of its file; its forward pass throws Error kBadData for a
/// batch that it rejects. `model` is what --model takes; throws Error kUsage for what it does not,
/// kNoInput and kBadData for such a file.
std::shared_ptr<Network> make_network(const std::string& model, std::uint64_t seed);

/// Runs one forward and backward pass of the TorchScript module in the file `path`. Throws Error
/// kBadData, naming the parameter, unless it can be trained in every mode: it takes the input,
/// returns logits of the classes, and gives each parameter a dense gradient whatever is drawn.
/// Where it takes no batch but its own, it must take `batches`, all that the run has.
void require_trainable_script(const std::string& path, const NetworkInput& input, Layout layout,
                              const std::set<std::int64_t>& batches);

/// How many samples to try a network with: few, or `batch` where it is a module that takes no
/// other.
std::int64_t trial_samples(Network& network, const NetworkInput& input, Layout layout,
                           std::int64_t batch);

/// The floating-point operations of each layer for one sample: of every convolution and matrix
/// product that LibTorch runs in a forward and a backward pass of a new network on the CPU, two for
/// a multiplication and its addition, as torch.utils.flop_counter counts them. Layers without any
/// (batch norm) have NaN. In the order of the network's parameters; parameters of one name but for
/// its last part are one layer. The gradient of a grouped convolution's weight counts what is
/// computed; torch.utils.flop_counter counts it as often as there are groups. `batch`: see
/// trial_samples. Seeds LibTorch's generator, as make_network does.
std::vector<LayerRow> layer_flop(const std::string& model, const NetworkInput& input,
                                 std::int64_t batch);

#define GRADSYNC_NETWORK(id, form, input, check) \
  std::shared_ptr<Network> make_##id(const std::string& model);
#include "options/networks.def"
#undef GRADSYNC_NETWORK

}  // namespace gradsync
