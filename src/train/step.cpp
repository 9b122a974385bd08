#include "train/step.h"

#include "model/image_batch.h"
#include "optim/clip.h"
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

  LossSums run() {
    Batch batch = load();
    const torch::Tensor outputs = forward(batch);
    const LossSums sums = parts_.mode.root_only() ? backward_from_root(outputs, batch)
                                                  : backward_from_here(outputs, batch);
    parts_.feed.recycle(std::move(batch));
    return sums;
  }

 private:
  void doing(Activity activity) { parts_.exchange.watchdog().doing(activity, iteration_); }

  Batch load() {
    doing(Activity::kData);
    const Scope timed(timer_, Phase::kData);
    return parts_.feed.next();
  }

  torch::Tensor forward(Batch& batch) {
    PassInput input;
    input.layout = parts_.compute.layout;
    input.images =
        image_batch(batch.images.data(), static_cast<std::int64_t>(batch.size), input.layout);
    input.samples = parts_.feed.samples_per_rank(index_);
    input.first = first_;
    input.last = last_;
    doing(Activity::kSynchronize);
    if (first_ && parts_.norms) parts_.norms->begin_iteration();
    const torch::Tensor images = parts_.mode.begin_pass(input);
    doing(Activity::kForward);
    const Scope timed(timer_, Phase::kForward);
    const AutocastScope autocast(parts_.compute.bf16);
    return parts_.replica.network->forward(images);
  }

  PassLoss loss_of(const torch::Tensor& logits, const Batch& batch, int ranks) {
    const Scope timed(timer_, Phase::kForward);
    const torch::Tensor labels =
        torch::from_blob(const_cast<std::int64_t*>(batch.labels.data()),
                         {static_cast<std::int64_t>(batch.size)}, torch::kInt64);
    return cross_entropy(logits, labels, ranks, parts_.passes, parts_.label_smoothing);
  }

  LossSums backward_from_here(const torch::Tensor& outputs, const Batch& batch) {
    const PassLoss loss = loss_of(outputs, batch, /*ranks=*/1);
    backward(outputs, [&] { loss.loss.backward(); });
    return loss.of_ranks[0];
  }

  LossSums backward_from_root(const torch::Tensor& outputs, const Batch& batch) {
    doing(Activity::kSynchronize);
    const torch::Tensor logits = parts_.mode.gather_outputs(outputs);
    PassLoss loss;
    torch::Tensor gradient;
    if (logits.defined()) {
      loss = loss_of(logits, batch, parts_.exchange.size());
      const Scope timed(timer_, Phase::kBackward);
      gradient = torch::autograd::grad({loss.loss}, {logits})[0];
    }
    const LossShare share = parts_.mode.scatter_loss_gradient(gradient, loss.of_ranks);
    backward(outputs, [&] { outputs.backward(share.gradient.to(outputs.scalar_type())); });
    return share.sums;
  }

  template <typename Run>
  void backward(const torch::Tensor& outputs, Run run) {
    parts_.mode.before_backward(outputs, last_);
    doing(Activity::kBackward);
    const double begin_s = timer_.stamp_s();
    run();
    timer_.add(
        Phase::kBackward,
        {begin_s, parts_.mode.waits_in_backward() ? parts_.guard.last_seen_s() : timer_.stamp_s()});
  }

  StepParts& parts_;
  IterationTimer& timer_;
  std::int64_t iteration_, index_;
  bool first_, last_;
};

bool steps_here(const StepParts& parts) {
  return !parts.mode.root_only() || parts.exchange.rank() == 0;
}

}  // namespace

StepResult run_step(StepParts& parts, std::int64_t iteration, std::int64_t step,
                    double learning_rate) {
  StepResult result;
  LossSums sums;
  IterationTimer timer(parts.measured, parts.norms ? &parts.norms->waits() : nullptr);
  parts.exchange.begin_iteration(iteration);
  parts.guard.reset();
  timer.begin();
  for (std::int64_t pass = 0; pass < parts.passes; ++pass) {
    const std::int64_t index = step * parts.passes + pass;
    const LossSums one =
        Pass(parts, timer, iteration, index, pass == 0, pass + 1 == parts.passes).run();
    sums.loss += one.loss;
    sums.correct += one.correct;
    result.samples += parts.feed.samples_per_rank(index);
  }
  parts.exchange.watchdog().doing(Activity::kSynchronize, iteration);
  parts.mode.synchronize();
  parts.exchange.watchdog().doing(Activity::kOptimizer, iteration);
  if (steps_here(parts)) {
    const Scope timed(timer, Phase::kOptimizer);
    const double norm = parts.clip_norm > 0 ? gradient_norm(parts.replica) : 0;
    parts.optimizer.step(learning_rate, clip_factor(norm, parts.clip_norm));
  }
  result.measured = timer.finish(parts.exchange.records());
  result.measured.begin_s = timer.begin_s();
  result.measured.loss = sums.loss / static_cast<double>(result.samples);
  result.measured.correct = static_cast<std::int64_t>(sums.correct);
  result.measured.traffic_bytes = parts.exchange.traffic();
  result.bad_tensor = parts.guard.first_bad();
  parts.exchange.watchdog().doing(Activity::kBetween, iteration);
  return result;
}

}  // namespace gradsync
