// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/types.h>

#include "data/sampler.h"
#include "exchange/exchange.h"
#include "model/replica.h"
#include "optim/optimizer.h"
#include "options/epoch_plan.h"
#include "options/options.h"
#include "sync/sync_mode.h"
#include "train/batch_source.h"
#include "train/compute_settings.h"
#include "train/gradient_guard.h"
#include "train/iteration_timer.h"
#include "train/resume.h"

namespace gradsync {

/// All that the device does in one iteration, NCCL's part included, captured once and replayed:
/// one launch instead of hundreds. What changes from step to step (place in the epoch, learning
/// rate, loss scale) lies in the device's memory.
///
/// The first iterations (kStepsBeforeCapture) of the largest batch run kernel by kernel, on the
/// very stream that is captured later, and so do those of another size. Inside a replayed iteration
/// nothing is timed: it has its length only. The tests have one that records nothing.
class StepGraph {
 public:
  /// Enqueues an iteration; returns its sums (PassLoss).
  using Work = std::function<torch::Tensor()>;

  StepGraph();
  virtual ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  /// Whether iterations of so many samples in so many passes are to be captured or replayed from
  /// now on.
  bool serves(std::int64_t samples, std::int64_t passes) const;
  /// Notes an iteration that was launched: what it moved is what a replay moves.
  void note(std::int64_t samples, std::int64_t passes, const TrafficBytes& traffic);

  bool captured() const { return captured_; }
  /// False if it could not be captured; `why_not` says why. Nothing of the work has run, or moved.
  /// `ledger` is where the work counts what it moves.
  bool capture(const Work& work, Ledger& ledger);
  /// Ends its use: it serves no iteration any more.
  void give_up(const std::string& why);
  /// Counts in the ledger what it moves.
  void replay(Ledger& ledger);

  /// The sums of the iteration replayed last, on the device; the next replay overwrites them.
  const torch::Tensor& sums() const { return sums_; }
  const TrafficBytes& traffic() const { return traffic_; }
  const std::string& why_not() const { return why_not_; }

 protected:
  /// Throws what the capture or the work does.
  virtual torch::Tensor record(const Work& work);
  virtual void launch();

 private:
  struct Graph;

  std::unique_ptr<Graph> graph_;
  bool captured_ = false;
  std::string why_not_;
  std::int64_t samples_ = 0, passes_ = 0, launched_ = 0;
  torch::Tensor sums_;
  TrafficBytes traffic_{};
  RankTraffic moved_;  ///< by one replay
};

/// The images that a rank loads.
enum class FeedShare {
  kOwn,       ///< its own slice
  kAllRanks,  ///< every rank's slice, in order of rank: a root that scatters
  kNone,      ///< nothing: receives from the root
};
FeedShare feed_share(SyncMode& mode, int rank);

/// The training images of one rank, pass by pass, over epochs. An iteration takes
/// `accumulate` passes, see EpochPlan.
class Feed {
 public:
  Feed(const DataSource& data, const TrainOptions& options, Layout layout, int rank, int ranks,
       FeedShare share);

  /// Iterations of an epoch, equal on all ranks; with --batch-schedule epochs differ.
  std::int64_t iterations_of(std::int64_t epoch) const { return plan_of(epoch).iterations(); }
  /// Passes of the iteration `step` of the epoch that is being fed: the last may have fewer.
  std::int64_t passes_of(std::int64_t step) const { return plan_.passes_of(step); }
  /// The pass with which the iteration `step` begins.
  std::int64_t first_pass_of(std::int64_t step) const { return step * plan_.accumulate; }

  /// Starts an epoch at its iteration `first`, and its prefetching. The order depends on `epoch`
  /// unless --no-set-epoch.
  void begin_epoch(std::int64_t epoch, std::int64_t first = 0);

  /// The next pass; blocks until it is loaded. Give it back with `recycle`.
  FeedBatch next() {
    ++made_;
    return source_->next();
  }
  void recycle(FeedBatch batch) { source_->recycle(std::move(batch)); }

  /// Batches of this epoch so far.
  std::int64_t made() const { return made_; }
  /// See BatchSource.
  void skip(std::int64_t batches) {
    made_ += batches;
    source_->skip(batches);
  }

  /// See BatchSource.
  const void* place() const { return source_->place(); }

  /// Images per rank of pass `pass` of the epoch, from any source.
  std::int64_t samples_per_rank(std::int64_t pass) const { return sampler_.batch_size(pass); }

  /// The order of an epoch, whichever one is being fed.
  Sampler order_of(std::int64_t epoch) const;

  std::string order_digest() const { return sampler_.order_digest(); }

 private:
  std::vector<std::int64_t> indices(std::int64_t pass) const;
  EpochPlan plan_of(std::int64_t epoch) const;
  std::int64_t longest_epoch() const;
  Sampler sampler_for(std::int64_t epoch) const;

  std::int64_t images_;  ///< of the training set
  const TrainOptions& options_;
  Layout layout_;
  int rank_, ranks_;
  FeedShare share_;
  Sampler sampler_;
  EpochPlan plan_;
  std::int64_t made_ = 0;
  std::unique_ptr<BatchSource> source_;  // last: its threads read all of the above
};

/// The loss of one pass on the rank that computes it.
struct PassLoss {
  torch::Tensor loss;  ///< scalar to run backward from: mean cross-entropy / parts
  /// Σ loss and number of right answers over each rank's samples, float64 [ranks, 2], where the
  /// logits are: reading them there would make the host wait for a device.
  torch::Tensor sums;
};

/// Cross-entropy in float32 of logits [ranks × samples, classes], the ranks' samples one after the
/// other. Of tokens, logits [ranks × samples, tokens, classes]: the loss of a sample is the mean of
/// its tokens', and its answer is right if the last token's is. It is averaged over all samples and
/// divided by `parts`: how many times as many samples the iteration has as this pass (gradient
/// accumulation), so that every sample weighs the same. With `label_smoothing` that share of the
/// target lies on all classes alike (Szegedy et al., 2016).
PassLoss cross_entropy(const torch::Tensor& logits, const torch::Tensor& labels, int ranks,
                       double parts, double label_smoothing = 0);

/// What the ranks exchange for batch norm, by --batch-norm.
class NormExchange {
 public:
  /// All must outlive it, and it the passes of the network.
  NormExchange(BatchNormMode how, Exchange& exchange, SyncMode& mode, Replica& replica);
  ~NormExchange();
  NormExchange(const NormExchange&) = delete;
  NormExchange& operator=(const NormExchange&) = delete;

  /// Call it before the first forward pass of an iteration. Collective.
  void begin_iteration();

  /// The spans in which passes of this iteration waited for statistics: not compute, though within
  /// forward and backward.
  const std::vector<Span>& waits() const { return waits_; }

 private:
  void mean(std::span<float> values);

  Exchange& exchange_;
  Replica& replica_;
  bool broadcasts_;
  std::vector<Span> waits_;
};

/// The updates of an iteration that ended while its gradients still traveled: each parameter is
/// stepped in the next forward pass, when that comes to its layer. What is computed is what a mode
/// that waits computes.
class DeferredUpdates {
 public:
  /// Every so many iterations one is completed, and the rows of those before it are gathered.
  static constexpr std::int64_t kSpan = 16;

  /// All must outlive it.
  DeferredUpdates(Replica& replica, DeferredGradients& gradients, Optimizer& optimizer);

  /// Whether the iteration is to be waited for after which `done` of the run have been: the first
  /// ones, from which the mode learns, and the last of each span.
  static bool completes_after(std::int64_t done) { return done <= 3 || done % kSpan == 0; }

  /// An iteration ends; its gradients will be applied.
  void carry(double learning_rate);

  /// Runs the forward pass. Calls `before` with the parameters of a layer that are still to be
  /// stepped, before the pass reads them, and at the end with those it never came to: the caller
  /// waits for their gradients and steps them.
  using Parameters = std::vector<std::size_t>;
  torch::Tensor forward(const torch::Tensor& images,
                        const std::function<void(const Parameters&)>& before);
  void wait(const Parameters& parameters) { gradients_.await(parameters); }
  void step(const Parameters& parameters);

  /// The collectives of the iteration that was begun before the last one.
  std::shared_ptr<IterationLog> swap_log(std::shared_ptr<IterationLog> iteration_log) {
    return std::exchange(last_log_, std::move(iteration_log));
  }

 private:
  Parameters pending_of(const torch::nn::Module& layer) const;
  Parameters all_pending() const;

  Replica& replica_;
  DeferredGradients& gradients_;
  Optimizer& optimizer_;
  std::unordered_map<const torch::nn::Module*, Parameters> parameters_of_;
  std::vector<bool> pending_;
  std::shared_ptr<IterationLog> last_log_;
};

/// What one rank trains with: its replica, and all that an iteration does with it.
struct RankTraining {
  /// Attaches the mode. `compute` and `options` must outlive it. Collective.
  RankTraining(Exchange& exchange, Replica trained, const DataSource& data,
               const ComputeSettings& compute, const TrainOptions& options);

  Exchange& exchange;
  const ComputeSettings& compute;
  const TrainOptions& options;
  Replica replica;
  GradientGuard guard;
  std::unique_ptr<SyncMode> mode;
  NormExchange norms;
  std::unique_ptr<Optimizer> optimizer;
  Feed feed;
  std::unique_ptr<DeferredUpdates> deferred;  ///< of a mode with cross-iteration overlap, else null
  StepGraph* graph = nullptr;                 ///< null: each step is launched kernel by kernel
  /// Most of the device's memory while a step was captured: replays take it without being counted.
  std::int64_t peak_of_capture_bytes = 0;
  bool completes = true;  ///< with deferred updates: the exchange ends with the iteration

  /// Whether the exchange is not complete after an iteration, so that its rows cannot be gathered
  /// yet.
  bool defers() const { return deferred != nullptr && !completes; }
};

/// What one iteration was on this rank.
struct FinishedIteration {
  IterationRow row;  ///< its head, and the collectives of this rank
  RankIteration measured;
  std::int64_t samples = 0;      ///< of this rank
  std::int64_t bad_tensor = -1;  ///< first parameter with a gradient that is not finite
  /// fp16: the loss scale may fall still, so that such a gradient is an overflow, which is
  /// expected.
  bool scale_may_fall = false;
  StopReason stop = StopReason::kNone;  ///< why this rank requests a stop after it
};

/// An iteration that was started. On the host it has run; on a device its numbers come when the
/// timer's last moment has.
struct StartedIteration {
  FinishedIteration known = {};  ///< what is known at once
  IterationTimer timer = IterationTimer();
  torch::Tensor sums = {};  ///< Σ loss, right answers: host memory, float64 [2]
  torch::Tensor loss_scale =
      {};  ///< after it: host memory, float32 [1]; none if losses are not scaled
  GuardFinding finding = {};
  /// Deferred updates only: this iteration's collectives and those left from the previous one; the
  /// first is null once read.
  std::shared_ptr<IterationLog> own_log = {}, previous_log = {};

  /// Reads the logs, once the collectives in them have ended.
  void take_collectives();
  /// All numbers of the iteration, once they have come and the collectives are taken.
  FinishedIteration finish(const Replica& replica);
};

/// One optimizer step of the global batch: forward and backward passes (Feed::passes_of), the
/// mode's exchange, the update. `iteration` counts over the run, `step` within the epoch; they and
/// the learning rate are in the row. Everything in it is timed.
StartedIteration start_iteration(RankTraining& training, std::int64_t iteration, std::int64_t step,
                                 double learning_rate);

struct Evaluation {
  double loss = kNotMeasured;      ///< mean cross-entropy over the images counted
  double accuracy = kNotMeasured;  ///< 0 to 1
  double time_s = 0;
};

/// Follows --evaluate. If replicas may differ, every rank evaluates all images: sharding would mix
/// the accuracies of different networks.
EvaluateHow evaluate_how(const TrainOptions& options, int ranks);

/// Runs the test images through the network, without augmentation. Collective.
Evaluation evaluate(RankTraining& training, const DataSource& data, EvaluateHow how);

/// Gives every replica rank 0's floating-point buffers (batch-norm statistics). Collective.
void broadcast_buffers(Exchange& exchange, Replica& replica);

}  // namespace gradsync
