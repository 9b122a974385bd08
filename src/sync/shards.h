// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "exchange/exchange.h"
#include "model/replica.h"
#include "sync/flat_gradients.h"
#include "sync/gradient_buckets.h"

namespace gradsync {

/// Groups of a replica's parameters, of each of which every rank has an equal part (ZeRO,
/// Rajbhandari et al., SC 2020): where a parameter or its gradient lies in the memory of its group,
/// which part is this rank's, when a backward pass has all gradients of a group, and the two
/// messages of a group.
///
/// `flat` is memory of a group of parameters or of gradients: one dimension, its values first.
class Shards {
 public:
  /// `groups`: indices of parameters, each once. `completed`: called in a backward pass when the
  /// last gradient of a group has come. The replica must outlive this.
  Shards(Exchange& exchange, const Replica& replica, std::vector<std::vector<std::size_t>> groups,
         std::function<void(std::size_t group)> completed);

  std::size_t size() const { return groups_.size(); }
  /// Places of all groups, one after the other: for modes that have them in one memory.
  const GradientLayout& layout() const { return layout_; }
  const std::vector<std::size_t>& parameters(std::size_t group) const { return groups_[group]; }
  const std::set<std::size_t>& groups_of(const torch::nn::Module& layer) const {
    return groups_of_layer_.at(&layer);
  }
  /// Values of a group, those that fill it up to equal parts too.
  std::int64_t values(std::size_t group) const {
    return static_cast<std::int64_t>(layout_.group(group).count);
  }

  /// The place of a parameter in memory of its group, with the shape of the parameter.
  torch::Tensor view(const torch::Tensor& flat, std::size_t parameter) const;
  /// This rank's part of a group.
  torch::Tensor own(const torch::Tensor& flat, std::size_t group) const;

  /// A backward pass begins that is to complete all groups.
  void begin_backward();
  bool complete(std::size_t group) const { return missing_[group] == 0; }
  /// From now on no group is completed. Returns whether a pass had begun.
  bool end_backward() { return std::exchange(in_backward_, false); }

  /// Starts to put parameters together of what each rank has in its part of `flat`.
  void gather(const torch::Tensor& flat, std::size_t group);
  /// Returns when they are there; returns the number of the message. The wait is one of `waits`.
  std::uint64_t await(std::size_t group);
  /// Starts to average gradients into this rank's part of `flat`. Returns the number of the
  /// message.
  std::uint64_t average(const torch::Tensor& flat, std::size_t group);

  /// When `await` waited, since the last call.
  std::vector<Span> take_waits() { return std::exchange(waits_, {}); }

  /// Memory of at least as many values as the group has. Groups hand it on to each other: there are
  /// as many buffers as have been needed at once, each of at most the largest group. On the host it
  /// is the system's own, since freed memory is kept (tune_allocation), and buffers of different
  /// sizes would leave gaps in it.
  torch::Tensor take_memory(std::size_t group);
  /// What comes last is taken first.
  void give_memory(const torch::Tensor& memory) {
    free_.emplace_hint(free_.lower_bound(memory.numel()), memory.numel(), memory);
  }
  /// Returns to the system what nobody has taken.
  void drop_memory() { free_.clear(); }

 private:
  std::uint64_t start(const Collective& call, const torch::Tensor& flat, Traffic category);

  Exchange& exchange_;
  const Replica& replica_;
  std::vector<std::vector<std::size_t>> groups_;
  GradientLayout layout_;
  std::vector<std::size_t> group_of_;  ///< by parameter
  std::map<const torch::nn::Module*, std::set<std::size_t>> groups_of_layer_;
  std::vector<std::uint64_t> arrives_;  ///< by group: the message of its parameters
  std::vector<Span> waits_;
  std::multimap<std::int64_t, torch::Tensor> free_;  ///< by length
  bool in_backward_ = false;
  std::vector<std::size_t> missing_;  ///< by group: gradients that it still waits for
  GradientHooks hooks_;
};

}  // namespace gradsync
