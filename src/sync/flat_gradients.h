// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include <torch/types.h>

#include "exchange/exchange.h"
#include "model/replica.h"

namespace gradsync {

/// Where each gradient lies in one flat buffer. Gradients that travel as one message are a group.
///
/// A group begins at a multiple of kGroupBytes, which NCCL and the kernels need to move 16 bytes at
/// once, and holds the values of its gradients: what lies between two groups does not travel. In a
/// group the gradients of a multiple of 16 bytes come first, so that an odd one (the bias of ten
/// classes) moves no other one off such a multiple.
class GradientLayout {
 public:
  static constexpr std::size_t kGroupBytes = 128;

  /// `groups`: indices of parameters, each once. Each is as long as a multiple of `parts`, with
  /// zeros at its end where its gradients are not.
  GradientLayout(const Replica& replica, const std::vector<std::vector<std::size_t>>& groups,
                 std::size_t parts = 1);

  /// What the whole buffer takes: where it ends, another group may begin.
  std::int64_t values() const { return static_cast<std::int64_t>(values_); }

  /// A part of the buffer, in values.
  struct Part {
    std::size_t offset = 0, count = 0;
  };
  Part group(std::size_t index) const { return groups_[index]; }
  Part gradient(std::size_t parameter) const { return gradients_[parameter]; }

 private:
  void place(const Replica& replica, std::size_t parameter);

  std::vector<Part> groups_, gradients_;
  std::size_t values_ = 0;
};

/// All gradients of a replica in one flat buffer; each parameter's .grad is a view of it with the
/// parameter's own strides, so autograd accumulates straight into what travels.
class FlatGradients {
 public:
  /// Existing gradients' values are kept, missing ones are zero. `flat`: as many zeros as the
  /// layout has values.
  FlatGradients(Replica& replica, const GradientLayout& layout, const torch::Tensor& flat);
  /// In memory of the exchange. Collective.
  FlatGradients(Replica& replica, const GradientLayout& layout, Exchange& exchange);
  /// In any memory.
  FlatGradients(Replica& replica, const GradientLayout& layout);
  /// One group of all parameters in the order of the modules.
  explicit FlatGradients(Replica& replica);

  std::span<float> group(std::size_t index) { return values(layout_.group(index)); }
  /// The gradient of one parameter (its index in the replica).
  std::span<float> of(std::size_t parameter) { return values(layout_.gradient(parameter)); }
  /// The mean of a group over the ranks, traveling as `wire`; keeps the values where they are, even
  /// when this object goes.
  Message mean(std::size_t group, ValueType wire);

  void zero() { flat_->zero_(); }

 private:
  std::span<float> values(GradientLayout::Part part);

  GradientLayout layout_;
  std::shared_ptr<torch::Tensor> flat_;
};

/// The values of `part` of flat memory, with the shape and the strides of the parameter.
torch::Tensor place_of(const torch::Tensor& parameter, GradientLayout::Part part,
                       const torch::Tensor& flat);

/// Moves the parameters into `flat`, to where the layout has their gradients.
void move_parameters(Replica& replica, const GradientLayout& layout, const torch::Tensor& flat);

/// `count` zeros of float32, in `memory` of host memory where it is given, which they hold, else on
/// the device.
torch::Tensor zeros_in(std::shared_ptr<std::byte> memory, std::int64_t count,
                       const torch::Device& device);
/// In memory of the exchange where it has any (Exchange::allocate). Collective.
torch::Tensor zeros_in(Exchange& exchange, std::int64_t count, const torch::Device& device);

/// The positions' parameters, checked to be each of `count` once. Throws Error kBadData.
std::vector<std::size_t> checked_order(std::span<const std::int64_t> order, std::size_t count);

/// 0, 1, …, count − 1: the order of the modules.
std::vector<std::size_t> module_order(std::size_t count);

/// The parameters of each bucket (cut_into_buckets), from the last module to the first: the order
/// in which a backward pass completes most of them.
std::vector<std::vector<std::size_t>> buckets_of(const Replica& replica,
                                                 std::int64_t first_bucket_bytes,
                                                 std::int64_t bucket_cap_bytes);

/// The parameters of each layer, or of each block of layers. Those of a layer of vectors with few
/// values, as a norm is, are not worth a message and join the layer before it.
std::vector<std::vector<std::size_t>> units_of(const Replica& replica, bool blocks);

/// All gradients of the replica as one message.
GradientLayout one_group(const Replica& replica);

}  // namespace gradsync
