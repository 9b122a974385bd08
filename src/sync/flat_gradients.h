#pragma once

#include <cstddef>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include <torch/types.h>

#include "model/replica.h"

namespace gradsync {

/// All gradients of a replica in one flat buffer, in a chosen order; each parameter's .grad is a
/// view of it with the parameter's own strides, so autograd accumulates straight into what travels.
class FlatGradients {
 public:
  /// `order` lists the parameters' indices, each once. Existing gradients' values are kept, missing
  /// ones are zero. They lie in `memory`, of room for all of them, where it is given.
  FlatGradients(Replica& replica, std::vector<std::size_t> order,
                std::shared_ptr<std::byte> memory = {});

  std::span<float> all();
  /// The gradient of one parameter (its index in the replica).
  std::span<float> of(std::size_t parameter);
  /// The gradients of the parameters at positions [first, last) of the order: one bucket.
  std::span<float> range(std::size_t first, std::size_t last);
  /// Keeps the values where they are while it is held.
  torch::Tensor memory() const { return flat_; }

  const std::vector<std::size_t>& order() const { return order_; }
  void zero() { flat_.zero_(); }

 private:
  torch::Tensor flat_;
  std::vector<std::size_t> order_;
  std::vector<std::size_t> offset_at_;  ///< of each position of the order, and the end
  std::vector<std::size_t> position_of_;
};

/// `count` zeros of float32, in `memory` of host memory where it is given, which they hold, else on
/// the device.
torch::Tensor zeros_in(std::shared_ptr<std::byte> memory, std::int64_t count,
                       const torch::Device& device);

/// What all gradients of the replica take.
std::size_t gradient_bytes(const Replica& replica);

/// The positions' parameters, checked to be each of `count` once. Throws Error kBadData.
std::vector<std::size_t> checked_order(std::span<const std::int64_t> order, std::size_t count);

/// 0, 1, …, count − 1: the order of the modules.
std::vector<std::size_t> module_order(std::size_t count);

}  // namespace gradsync
