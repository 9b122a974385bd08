// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <torch/types.h>

#include "checkpoint/checkpoint_file.h"
#include "model/network.h"
#include "quantize/float_model.h"
#include "quantize/int8_model.h"

/// Networks of a plan in LibTorch's floating point. Images are tensors [N, 3, 32, 32]; values of a
/// plan are [N, C, H, W], channels last in memory. No gradients.
namespace gradsync::quantize {

/// Callback for value 0 (the images) and what each node gives, in order.
using ValueObserver = std::function<void(std::size_t value, const torch::Tensor& values)>;

/// The network in single precision: the parameters as they were trained, batch norm folded.
class FloatNetwork {
 public:
  explicit FloatNetwork(const FloatModel& model);
  /// Logits [N, classes].
  torch::Tensor forward(const torch::Tensor& images, const ValueObserver& observe = {}) const;

 private:
  Plan plan_;
  std::vector<torch::Tensor> weights_, biases_;  ///< one a node; undefined where there is none
};

/// The network in integers that are kept in floating point, as the published study has them: each
/// tensor holds whole numbers, zero points taken off. Sums are exact: single precision holds whole
/// numbers below 2^24, so the input channels of a layer whose largest possible sum reaches that are
/// cut into slices that stay below, and what these give is added up in double precision. So each
/// layer gives what Int8Layer defines, to the bit.
class EmulatedNetwork {
 public:
  /// With `float_bias`, biases of it are added without being rounded.
  explicit EmulatedNetwork(const Int8Model& model, const FloatModel* float_bias = nullptr);
  /// Logits [N, classes] in single precision; the observer sees whole numbers.
  torch::Tensor forward(const torch::Tensor& images, const ValueObserver& observe = {}) const;

 private:
  struct Layer {
    torch::Tensor weights, bias, multipliers;
    std::int64_t slices = 1;
  };
  torch::Tensor sums_of(std::size_t node, const torch::Tensor& input) const;
  torch::Tensor rescaled(std::size_t node, const torch::Tensor& value) const;

  Int8Model model_;
  std::vector<Layer> layers_;
};

/// The trainer's own network with the parameters of a checkpoint, in evaluation mode. Throws Error
/// kBadData if they do not fit.
std::shared_ptr<Network> trained_network(const CheckpointFile& checkpoint,
                                         const std::string& model);

/// The largest difference between the logits of the trainer's network and those of the folded one,
/// over the largest logit. Throws Error kInternal if it is above 1e-3: then the plan is not this
/// network.
double folding_difference(Network& trained, const FloatModel& folded, const torch::Tensor& images);

}  // namespace gradsync::quantize
