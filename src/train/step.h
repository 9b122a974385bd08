#pragma once

#include "exchange/exchange.h"
#include "model/replica.h"
#include "optim/optimizer.h"
#include "sync/sync_mode.h"
#include "train/compute_settings.h"
#include "train/deferred_updates.h"
#include "train/feed.h"
#include "train/gradient_guard.h"
#include "train/iteration_timer.h"
#include "train/norm_exchange.h"
#include "train/step_graph.h"
#include "train/stop_request.h"

namespace gradsync {

/// The parts that one training iteration works with; all outlive it.
struct StepParts {
  Replica& replica;
  SyncMode& mode;
  Optimizer& optimizer;
  Feed& feed;
  GradientGuard& guard;
  Exchange& exchange;
  const ComputeSettings& compute;
  NormExchange* norms = nullptr;  ///< none: batch norm is each rank's own
  double clip_norm = 0;           ///< 0: never
  double label_smoothing = 0;
  bool measured = true;                 ///< with stamps of the phases
  StepGraph* graph = nullptr;           ///< none: each step is launched kernel by kernel
  DeferredUpdates* deferred = nullptr;  ///< of a mode with cross-iteration overlap
  bool completes = true;  ///< with deferred updates: the exchange ends with the iteration

  /// Whether the exchange is not complete after an iteration, so that its rows cannot be gathered
  /// yet.
  bool defers() const { return deferred != nullptr && !completes; }
};

/// What one iteration was on this rank.
struct StepResult {
  RankIteration measured;
  std::vector<BucketShape> buckets;
  std::int64_t samples = 0;             ///< of this rank
  std::int64_t bad_tensor = -1;         ///< first parameter with a gradient that is not finite
  StopReason stop = StopReason::kNone;  ///< why this rank requests a stop after it
};

/// An iteration that was started. On the host it has run; on a device its numbers come when the
/// timer's last moment has.
struct PendingStep {
  IterationTimer timer;
  torch::Tensor sums;        ///< Σ loss, right answers: host memory, float64 [2]
  torch::Tensor loss_scale;  ///< after it: host memory, float32 [1]; none if losses are not scaled
  GuardFinding finding;
  StepResult known;  ///< what is known at once
  /// Of a mode that carries, until they are taken: its collectives, and those that the iteration
  /// before left it.
  std::shared_ptr<IterationLog> iteration_log = {}, deferred = {};
};

/// One optimizer step of the global batch: forward and backward passes (Feed::passes_of), the
/// mode's exchange, the update. `iteration` counts over the run, `step` within the epoch.
/// Everything in it is timed.
PendingStep run_step(StepParts& parts, std::int64_t iteration, std::int64_t step,
                     double learning_rate);

/// Its collectives, once a mode that carries has been waited for.
void take_collectives(PendingStep& pending);
/// Its numbers, once they have come and its collectives are known.
StepResult finish_step(PendingStep& pending, const Replica& replica);

}  // namespace gradsync
