#include "train/step.h"

#include "model/image_batch.h"
#include "optim/clip.h"
#include "train/host_copy.h"
#include "train/loss.h"

namespace gradsync {

namespace {

using Scope = IterationTimer::Scope;

/// A batch where the network computes.
struct PassBatch {
  torch::Tensor images, labels;
};

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
    Batch loaded;
    const PassBatch batch = load(loaded);
    const torch::Tensor outputs = forward(batch);
    const torch::Tensor sums = parts_.mode.root_only() ? backward_from_root(outputs, batch)
                                                       : backward_from_here(outputs, batch);
    parts_.feed.recycle(std::move(loaded));
    return sums;
  }

 private:
  void doing(Activity activity) { parts_.exchange.watchdog().doing(activity, iteration_); }

  /// The tensors use the memory of `loaded` where the network computes on the host.
  PassBatch load(Batch& loaded) {
    doing(Activity::kData);
    const Scope timed(timer_, Phase::kData);
    loaded = parts_.feed.next();
    const auto samples = static_cast<std::int64_t>(loaded.size);
    return {image_batch(loaded.images.data(), samples, parts_.compute.layout).to(device()),
            torch::from_blob(loaded.labels.data(), {samples}, torch::kInt64).to(device())};
  }

  torch::Device device() const { return parts_.replica.parameters[0].device(); }

  torch::Tensor forward(const PassBatch& batch) {
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
    const AutocastScope autocast(parts_.compute.bf16, parts_.compute.device.type());
    return parts_.replica.network->forward(images);
  }

  PassLoss loss_of(const torch::Tensor& logits, const PassBatch& batch, int ranks) {
    const Scope timed(timer_, Phase::kForward);
    return cross_entropy(logits, batch.labels, ranks, parts_.passes, parts_.label_smoothing);
  }

  torch::Tensor backward_from_here(const torch::Tensor& outputs, const PassBatch& batch) {
    const PassLoss loss = loss_of(outputs, batch, /*ranks=*/1);
    backward(outputs, [&] { loss.loss.backward(); });
    return loss.sums[0];
  }

  torch::Tensor backward_from_root(const torch::Tensor& outputs, const PassBatch& batch) {
    doing(Activity::kSynchronize);
    const torch::Tensor logits = parts_.mode.gather_outputs(outputs);
    PassLoss loss;
    torch::Tensor gradient;
    if (logits.defined()) {
      loss = loss_of(logits, batch, parts_.exchange.size());
      const Scope timed(timer_, Phase::kBackward);
      gradient = torch::autograd::grad({loss.loss}, {logits})[0];
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

/// Averaged gradients become new parameters.
void update(StepParts& parts, IterationTimer& timer, double learning_rate) {
  if (!steps_here(parts)) return;
  const Scope timed(timer, Phase::kOptimizer);
  const double norm = parts.clip_norm > 0 ? gradient_norm(parts.replica) : 0;
  parts.optimizer.step(learning_rate, clip_factor(norm, parts.clip_norm));
}

/// What is known of an iteration when everything of it was started.
void close(PendingStep& pending, StepParts& parts, const torch::Tensor& sums) {
  pending.sums = to_host(sums);
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
  PendingStep pending{IterationTimer(parts.measured, parts.exchange.lane()), {}, {}, {}};
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
  return result;
}

}  // namespace gradsync
