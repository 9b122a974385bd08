// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <torch/types.h>

#include "exchange/exchange.h"
#include "sync/buckets.h"
#include "sync/flat_gradients.h"

namespace gradsync {

/// Calls `ready(parameter index)` each time a backward pass has accumulated a parameter's gradient,
/// in the order and on the thread in which autograd does so. What torch's own DDP hooks into.
class GradientHooks {
 public:
  GradientHooks(const std::vector<torch::Tensor>& parameters,
                const std::function<void(std::size_t)>& ready);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  /// A std::shared_ptr in LibTorch 2.11, an intrusive_ptr in 2.15.
  using NodePointer = decltype(torch::autograd::impl::grad_accumulator(torch::Tensor()));

  // Autograd keeps only a weak reference to a parameter's accumulator: without these it, and the
  // hook with it, would be gone before the first backward pass.
  std::vector<NodePointer> accumulators_;
  std::vector<std::uintptr_t> keys_;
};

/// The gradients of a replica in flat buckets, in the order in which the backward pass completes
/// them; calls back when a bucket is full.
///
/// Buckets start in the reverse order of the modules. After the first iteration they are built
/// again from the order that rank 0 observed, so all ranks cut alike.
class GradientBuckets {
 public:
  struct Limits {
    std::int64_t first_bytes = 0, cap_bytes = 0;
  };
  struct Events {
    std::function<void()> laid_out;  ///< buckets were built, for the first time or again
    std::function<void()> filled;    ///< in the backward pass, whenever a bucket is full
  };

  GradientBuckets(Exchange& exchange, Limits limits, Events events);

  void attach(Replica& replica);

  /// Before a backward pass; `exchanging`: whether it completes the gradients of an iteration. Only
  /// then is a bucket reported.
  void begin(bool exchanging);
  /// After the exchange of an iteration. The first time it builds the buckets again: gradients
  /// move, with their values. Collective. Whether it did. Throws Error kInternal, naming the first
  /// parameter, when the pass gave one no gradient.
  bool end();

  std::size_t size() const { return buckets_.size(); }
  bool full(std::size_t bucket) const { return missing_[bucket] == 0; }
  /// When it was full last.
  Moment ready(std::size_t bucket) const { return ready_[bucket]; }
  std::span<float> values(std::size_t bucket) { return gradients_->group(bucket); }
  /// Their mean over the ranks (FlatGradients::mean).
  Message message(std::size_t bucket, ValueType wire) { return gradients_->mean(bucket, wire); }
  std::size_t bucket_of(std::size_t parameter) const { return bucket_of_[parameter]; }

  /// The order from which they were built again; empty before that.
  std::vector<std::int64_t> state() const;
  /// Throws Error kBadData for what is no order of the parameters.
  void restore(const std::vector<std::int64_t>& state);

 private:
  void gradient_ready(std::size_t parameter);
  void require_all() const;
  void share_order();
  void lay_out(const std::vector<std::size_t>& order);

  Exchange& exchange_;
  Limits limits_;
  Events events_;
  Replica* replica_ = nullptr;
  std::optional<FlatGradients> gradients_;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;  ///< by parameter
  std::vector<std::size_t> missing_;    ///< gradients a bucket still waits for
  std::vector<bool> came_;              ///< by parameter, in this pass
  std::vector<Moment> ready_;
  std::vector<std::int64_t> observed_;
  bool exchanging_ = false, rebuilt_ = false;
  std::optional<GradientHooks> hooks_;
};

}  // namespace gradsync
