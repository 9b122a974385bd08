// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "exchange/exchange.h"
#include "model/replica.h"
#include "sync/flat_gradients.h"

namespace gradsync {

/// Groups of a replica's parameters, of each of which every rank has an equal part (ZeRO,
/// Rajbhandari et al., SC 2020): where a parameter or its gradient lies in the memory of its group,
/// which part is this rank's, and the two messages of a group.
///
/// `flat` is memory of a group of parameters or of gradients: one dimension, its values first.
class Shards {
 public:
  /// `groups`: indices of parameters, each once. The replica must outlive this.
  Shards(Exchange& exchange, const Replica& replica, std::vector<std::vector<std::size_t>> groups);

  std::size_t size() const { return groups_.size(); }
  /// Places of all groups, one after the other: for modes that have them in one memory.
  const GradientLayout& layout() const { return layout_; }
  const std::vector<std::size_t>& parameters(std::size_t group) const { return groups_[group]; }
  std::size_t group_of(std::size_t parameter) const { return group_of_[parameter]; }
  /// Values of a group, those that fill it up to equal parts too.
  std::int64_t values(std::size_t group) const {
    return static_cast<std::int64_t>(layout_.group(group).count);
  }

  /// The place of a parameter in memory of its group, with the shape of the parameter.
  torch::Tensor view(const torch::Tensor& flat, std::size_t parameter) const;
  /// This rank's part of a group.
  torch::Tensor own(const torch::Tensor& flat, std::size_t group) const;

  /// Starts to put parameters together of what each rank has in its part of `flat`.
  void gather(const torch::Tensor& flat, std::size_t group);
  /// Returns when they are there; returns the number of the message. The wait is one of `waits`.
  std::uint64_t await(std::size_t group);
  /// Starts to average gradients into this rank's part of `flat`. Returns the number of the
  /// message.
  std::uint64_t average(const torch::Tensor& flat, std::size_t group);

  /// When `await` waited, since the last call.
  std::vector<Span> take_waits() { return std::exchange(waits_, {}); }

 private:
  std::uint64_t start(const Collective& call, const torch::Tensor& flat, Traffic category);

  Exchange& exchange_;
  const Replica& replica_;
  std::vector<std::vector<std::size_t>> groups_;
  GradientLayout layout_;
  std::vector<std::size_t> group_of_;   ///< by parameter
  std::vector<std::uint64_t> arrives_;  ///< by group: the message of its parameters
  std::vector<Span> waits_;
};

}  // namespace gradsync
