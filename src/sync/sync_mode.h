// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include "exchange/exchange.h"
#include "model/replica.h"
#include "options/options.h"
#include "sync/buckets.h"

namespace gradsync {

/// What a pass begins with.
struct PassInput {
  /// [samples, 3, 32, 32], or samples of other sizes: the rank's own, or all ranks' on a feeding
  /// root and none elsewhere.
  torch::Tensor images;
  std::int64_t samples = 0;  ///< per rank
  Layout layout = Layout::kNhwc;
  bool first = true;  ///< of the iteration's passes
};

/// What the rank that computes the loss sends to another one.
struct LossShare {
  torch::Tensor gradient;  ///< with respect to the rank's outputs, their shape
  torch::Tensor sums;      ///< of the rank, as PassLoss::sums has them: [2]
};

/// A mode whose root computes the loss of all ranks' outputs and steps alone. All calls are
/// collective.
class RootLoss {
 public:
  virtual ~RootLoss() = default;

  /// Before the forward pass. Returns the images this rank computes on.
  virtual torch::Tensor scatter_images(const PassInput& input) = 0;

  /// Logits of all ranks on the root, undefined elsewhere.
  virtual torch::Tensor gather_outputs(const torch::Tensor& outputs) = 0;

  /// Returns the gradient with respect to this rank's outputs, and the sums over its samples.
  /// `logits_gradient` and `sums_of_ranks` [ranks, 2] are used on the root only.
  virtual LossShare scatter_gradient(const torch::Tensor& logits_gradient,
                                     const torch::Tensor& sums_of_ranks) = 0;

  /// On return every replica holds the root's parameters and buffers.
  virtual void broadcast_model() = 0;
};

/// A mode whose iterations may end without `synchronize`, while their gradients are in transit. The
/// next iteration waits for each of them where it needs it. Until `synchronize` no other code
/// communicates.
class DeferredGradients {
 public:
  virtual ~DeferredGradients() = default;

  /// Returns when the gradients of these parameters are the averages.
  virtual void await(const std::vector<std::size_t>& parameters) = 0;
};

struct SyncSettings {
  std::string granularity = "flat";  ///< tensor | flat
  std::int64_t first_bucket_bytes = kDefaultFirstBucketBytes;
  std::int64_t bucket_cap_bytes = kDefaultBucketCapBytes;
  std::string wire_dtype = "fp32";  ///< fp32 | bf16 | fp16
  Overlap overlap = Overlap::kBackward;
};

/// How one rank's gradients become the average over the ranks: one class and one file a mode.
///
/// The training step calls the hooks in this order and a mode overrides those it needs:
///   attach                                          once, all replicas hold equal parameters
///   per pass (accumulate passes an iteration):
///     before_forward → [forward] → [loss] → before_backward → [backward]
///   synchronize                                     afterwards every gradient is the average
/// The parts in brackets are compute; everything a mode communicates in the thread of the step lies
/// outside them, so that no communication is counted as compute. With a RootLoss the loss is
/// between its `gather_outputs` and `scatter_gradient`.
class SyncMode {
 public:
  virtual ~SyncMode() = default;

  /// Takes over the replica's gradients: on return each parameter has one, zeroed, where the mode
  /// needs it. The replica must outlive the mode.
  virtual void attach(Replica& replica) = 0;

  /// A forward pass begins; `last` of the iteration.
  virtual void before_forward(bool /*last*/) {}

  /// The backward pass begins; `last` when its gradients complete the iteration's.
  virtual void before_backward(const torch::Tensor& /*outputs*/, bool /*last*/) {}

  /// Whether the backward pass itself waits for the exchange before it returns. Its compute then
  /// ends with its last gradient.
  virtual bool waits_in_backward() const { return false; }

  /// On return every gradient of a rank that steps is the average over ranks. Collective.
  virtual void synchronize() = 0;

  /// What this mode has settled since `attach` that decides in which order it sums, for
  /// checkpoints; empty if nothing. Between two iterations.
  virtual std::vector<std::int64_t> state() const { return {}; }

  /// After `attach`: sums from now on as the mode did that gave this `state`. Throws Error kBadData
  /// if it is none of this network's.
  virtual void restore(const std::vector<std::int64_t>& state);

  /// Null unless Mode::root_only, Mode::defers with --overlap step.
  virtual RootLoss* root_loss() { return nullptr; }
  virtual DeferredGradients* deferred() { return nullptr; }

  /// On return every replica holds the current parameters. Called outside the iterations, before an
  /// evaluation or a comparison. Collective.
  void publish() {
    if (RootLoss* root = root_loss()) root->broadcast_model();
  }
};

/// Makes the mode and names it in the exchange's fingerprints. Throws Error kUsage if unknown.
std::unique_ptr<SyncMode> make_sync_mode(std::string_view name, Exchange& exchange,
                                         const SyncSettings& settings);

#define GRADSYNC_MODE(id, ...) std::unique_ptr<SyncMode> make_##id(Exchange&, const SyncSettings&);
#include "options/modes.def"
#undef GRADSYNC_MODE

}  // namespace gradsync
