// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <torch/types.h>

#include "data/augment.h"
#include "model/network.h"

namespace gradsync {

/// One rank's copy of the network: its parameters and buffers in the order of the modules, which is
/// the same on every rank.
struct Replica {
  std::shared_ptr<Network> network;
  std::vector<torch::Tensor> parameters;
  std::vector<std::string> names;  ///< of the parameters: "features.0.weight"
  std::vector<torch::Tensor> buffers;
  std::vector<std::string> buffer_names;

  std::int64_t parameter_count() const;
  /// Indices of the parameters of a module and those in it.
  std::vector<std::size_t> parameters_of(const torch::nn::Module& module) const;
};

/// The values of a float32 tensor without gaps, in the order in which they lie.
inline std::span<float> values_of(const torch::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

/// Values with a name, as a checkpoint holds them: on the CPU, contiguous in the order of the
/// shape, float32, float64, bool or whole numbers of 8 to 64 bits with a sign, of 8 without.
struct NamedTensor {
  std::string name;
  torch::Tensor values;
  bool of_rank = false;  ///< what the rank measured, rather than the network's
};

/// Builds the network from `seed` in the given memory layout, with the same values on every device.
Replica make_replica(const std::string& model, std::uint64_t seed, Layout layout,
                     const torch::Device& device = torch::kCPU);

/// SHA-256 of all parameters' values in order, 16 hex digits: equal only if bit-equal.
std::string parameter_hash(const Replica& replica);

/// Hash of all floating-point buffers; empty where there are none.
std::string buffer_hash(const Replica& replica);

/// A copy of all floating-point buffers in host memory, one after the other: running means and
/// variances.
torch::Tensor flat_buffers(const Replica& replica);

/// A copy of all parameters in host memory, one after the other, in NCHW order of each.
torch::Tensor flat_parameters(const Replica& replica);

}  // namespace gradsync
