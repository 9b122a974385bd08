#include "train/step.h"

#include "optim/clip.h"
#include "train/host_copy.h"
#include "train/loss.h"

namespace gradsync {

namespace {

using Scope = IterationTimer::Scope;

/// One pass of an iteration.
class Pass {
 public:
  Pass(StepParts& parts, IterationTimer& timer, std::int64_t iteration, std::int64_t index,
       bool first, bool last)
      : parts_(parts),
        timer_(timer),
        iteration_(iteration),
        index_(index),
        first_(first),
        last_(last) {}

  /// Returns the sums of the rank's samples, as PassLoss::sums has them.
  torch::Tensor run() {
    FeedBatch batch = load();
    const torch::Tensor outputs = forward(batch);
    const torch::Tensor sums = parts_.mode.root_only() ? backward_from_root(outputs, batch)
                                                       : backward_from_here(outputs, batch);
    parts_.feed.recycle(std::move(batch));
    return sums;
  }

 private:
  void doing(Activity activity) { parts_.exchange.watchdog().doing(activity, iteration_); }

  FeedBatch load() {
    doing(Activity::kData);
    const Scope timed(timer_, Phase::kData);
    return parts_.feed.next();
  }

  torch::Tensor forward(const FeedBatch& batch) {
    PassInput input;
    input.layout = parts_.compute.layout;
    input.images = batch.images;
    input.samples = parts_.feed.samples_per_rank(index_);
    input.first = first_;
    input.last = last_;
    doing(Activity::kSynchronize);
    if (first_ && parts_.norms) parts_.norms->begin_iteration();
    const torch::Tensor images = parts_.mode.begin_pass(input);
    doing(Activity::kForward);
    const Scope timed(timer_, Phase::kForward);
    const AutocastScope autocast(parts_.compute.precision, parts_.compute.device.type());
    return parts_.replica.network->forward(images);
  }

  PassLoss loss_of(const torch::Tensor& logits, const FeedBatch& batch, int ranks) {
    const Scope timed(timer_, Phase::kForward);
    return cross_entropy(logits, batch.labels, ranks, parts_.passes, parts_.label_smoothing);
  }

  /// fp16: so that small gradients do not vanish; the optimiser takes them over the same scale.
  torch::Tensor scaled(const torch::Tensor& loss) const {
    return parts_.optimizer.scales_loss() ? loss * parts_.optimizer.loss_scale() : loss;
  }

  torch::Tensor backward_from_here(const torch::Tensor& outputs, const FeedBatch& batch) {
    const PassLoss loss = loss_of(outputs, batch, /*ranks=*/1);
    backward(outputs, [&] { scaled(loss.loss).backward(); });
    return loss.sums[0];
  }

  torch::Tensor backward_from_root(const torch::Tensor& outputs, const FeedBatch& batch) {
    doing(Activity::kSynchronize);
    const torch::Tensor logits = parts_.mode.gather_outputs(outputs);
    PassLoss loss;
    torch::Tensor gradient;
    if (logits.defined()) {
      loss = loss_of(logits, batch, parts_.exchange.size());
      const Scope timed(timer_, Phase::kBackward);
      gradient = torch::autograd::grad({scaled(loss.loss)}, {logits})[0];
    }
    const LossShare share = parts_.mode.scatter_loss_gradient(gradient, loss.sums);
    backward(outputs, [&] { outputs.backward(share.gradient.to(outputs.scalar_type())); });
    return share.sums;
  }

  template <typename Run>
  void backward(const torch::Tensor& outputs, Run run) {
    parts_.mode.before_backward(outputs, last_);
    doing(Activity::kBackward);
    const Moment begin = timer_.stamp();
    run();
    timer_.add(Phase::kBackward, {begin, parts_.mode.waits_in_backward() ? parts_.guard.last_seen()
                                                                         : timer_.stamp()});
  }

  StepParts& parts_;
  IterationTimer& timer_;
  std::int64_t iteration_, index_;
  bool first_, last_;
};

bool steps_here(const StepParts& parts) {
  return !parts.mode.root_only() || parts.exchange.rank() == 0;
}

/// What the gradients are to be multiplied by beside the loss scale.
double clip_factor_of(const StepParts& parts) {
  if (parts.clip_norm <= 0) return 1;
  const double scale =
      parts.optimizer.scales_loss() ? parts.optimizer.loss_scale().item<double>() : 1;
  return clip_factor(gradient_norm(parts.replica) / scale, parts.clip_norm);
}

/// Averaged gradients become new parameters.
void update(StepParts& parts, IterationTimer& timer, double learning_rate) {
  if (!steps_here(parts)) return;
  const Scope timed(timer, Phase::kOptimizer);
  parts.optimizer.step(learning_rate, clip_factor_of(parts));
}

/// What is known of an iteration when everything of it was started.
void close(PendingStep& pending, StepParts& parts, const torch::Tensor& sums) {
  pending.sums = to_host(sums);
  if (parts.optimizer.scales_loss()) pending.loss_scale = to_host(parts.optimizer.loss_scale());
  pending.timer.stop(parts.exchange.records(),
                     parts.norms ? parts.norms->waits() : std::vector<Span>());
  pending.known.measured.traffic_bytes = parts.exchange.traffic();
  pending.known.bad_tensor = parts.guard.first_bad();
  for (const CollectiveRecord& record : parts.exchange.records())
    pending.known.buckets.push_back({record.bytes, record.kind});
}

}  // namespace

PendingStep run_step(StepParts& parts, std::int64_t iteration, std::int64_t step,
                     double learning_rate) {
  PendingStep pending{IterationTimer(parts.measured, parts.exchange.lane()), {}, {}, {}, {}};
  Watchdog& watchdog = parts.exchange.watchdog();
  torch::Tensor sums;
  parts.exchange.begin_iteration(iteration);
  pending.timer.begin();
  parts.guard.reset(parts.mode.waits_in_backward());
  for (std::int64_t pass = 0; pass < parts.passes; ++pass) {
    const std::int64_t index = step * parts.passes + pass;
    const torch::Tensor one =
        Pass(parts, pending.timer, iteration, index, pass == 0, pass + 1 == parts.passes).run();
    sums = sums.defined() ? sums + one : one;
    pending.known.samples += parts.feed.samples_per_rank(index);
  }
  parts.guard.note_places();
  watchdog.doing(Activity::kSynchronize, iteration);
  parts.mode.synchronize();
  pending.finding = parts.guard.finding();  // the update zeroes the gradients
  watchdog.doing(Activity::kOptimizer, iteration);
  update(parts, pending.timer, learning_rate);
  close(pending, parts, sums);
  watchdog.doing(Activity::kBetween, iteration);
  return pending;
}

StepResult finish_step(const PendingStep& pending, const Replica& replica) {
  StepResult result = pending.known;
  const auto traffic = result.measured.traffic_bytes;
  result.measured = pending.timer.result();
  result.measured.traffic_bytes = traffic;
  result.measured.begin_s = pending.timer.first().host_s;
  const double* sums = pending.sums.data_ptr<double>();
  result.measured.loss = sums[0] / static_cast<double>(result.samples);
  result.measured.correct = static_cast<std::int64_t>(sums[1]);
  if (pending.finding.lowest.defined())
    result.bad_tensor = GradientGuard::first_bad(pending.finding, replica);
  // An overflow is fp16's way of life: the step was left out and the scale lowered. At its lowest
  // the gradients are bad in themselves.
  if (pending.loss_scale.defined() && pending.loss_scale.item<float>() >= kLowestLossScale)
    result.bad_tensor = -1;
  return result;
}

}  // namespace gradsync
