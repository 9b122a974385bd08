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

/// How the ranks come to train one network: one class and one file a mode.
///
/// The training step calls the hooks in this order and a mode overrides those it needs:
///   attach                                          once, all replicas hold equal parameters
///   per pass (accumulate passes an iteration):
///     before_forward → [forward] → [loss] → before_backward → [backward]
///   synchronize                                     afterwards the gradients are those to step by
///   [update] → after_update
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

  /// On return the gradients of a rank that steps are those of the update: averages over the ranks,
  /// or what the mode has in their place (Mode::changes). Collective.
  virtual void synchronize() = 0;

  /// On return the parameters are those with which this rank trains on. Collective.
  virtual void after_update() {}

  /// What the optimizer of this rank steps, after `attach`: all of the replica, or the rank's part
  /// of it.
  virtual Replica& stepped(Replica& replica) { return replica; }

  /// What this mode has settled since `attach` that decides in which order it sums, for
  /// checkpoints; empty if nothing. Between two iterations.
  virtual std::vector<std::int64_t> state() const { return {}; }

  /// What the mode keeps from one iteration to the next beside `state`, for checkpoints: views
  /// that are read and written, the same names and shapes on all ranks. After `attach`.
  virtual std::vector<NamedTensor> carried() { return {}; }

  /// After `attach`: sums from now on as the mode did that gave this `state`. Throws Error kBadData
  /// if it is none of this network's.
  virtual void restore(const std::vector<std::int64_t>& state);

  /// What the forward pass of a training iteration calls before it reads the parameters of a layer;
  /// empty if nothing. After `before_forward`.
  virtual Gate gate() { return {}; }

  /// The spans in which forward and backward passes waited for this mode, since the last call: not
  /// compute, though within them.
  virtual std::vector<Span> take_waits() { return {}; }

  /// Null unless Mode::root_only, Mode::defers with --overlap step.
  virtual RootLoss* root_loss() { return nullptr; }
  virtual DeferredGradients* deferred() { return nullptr; }

  /// On return every replica holds the current parameters. Called outside the iterations, before an
  /// evaluation or a comparison. Collective.
  virtual void publish() {
    if (RootLoss* root = root_loss())
      root->broadcast_model();
    else
      assemble();
  }
  /// Call it after `publish` if training continues: from what this rank had before.
  virtual void withdraw() { take_apart(); }

  /// On return the replica holds all parameters with which this rank trains, for a checkpoint.
  /// Called outside the iterations. Collective.
  virtual void assemble() {}
  /// Call it after `assemble`: training continues from what the replica holds now.
  virtual void take_apart() {}
};

/// Makes the mode and names it in the exchange's fingerprints. Throws Error kUsage if unknown.
std::unique_ptr<SyncMode> make_sync_mode(std::string_view name, Exchange& exchange,
                                         const SyncSettings& settings);

#define GRADSYNC_MODE(id, ...) std::unique_ptr<SyncMode> make_##id(Exchange&, const SyncSettings&);
#include "options/modes.def"
#undef GRADSYNC_MODE

}  // namespace gradsync
