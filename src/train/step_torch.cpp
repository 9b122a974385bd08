#include <array>
#include <functional>

#include <ATen/Context.h>
#include <torch/csrc/autograd/autograd.h>

#include "data/random.h"
#include "optim/clip.h"
#include "train/gradient_guard.h"
#include "train/loss.h"
#include "train/step.h"

namespace gradsync {

namespace {

using Scope = IterationTimer::Scope;

/// One pass of an iteration.
class Pass {
 public:
  /// `samples`: of this rank in the iteration.
  Pass(StepParts& parts, IterationTimer& timer, std::int64_t iteration, std::int64_t samples,
       std::int64_t index, bool first, bool last)
      : parts_(parts),
        timer_(timer),
        iteration_(iteration),
        samples_(samples),
        index_(index),
        first_(first),
        last_(last) {}

  /// Returns the sums of the rank's samples, as PassLoss::sums has them.
  torch::Tensor run() {
    FeedBatch batch = load();
    const torch::Tensor outputs = forward(batch);
    const torch::Tensor sums = parts_.mode.root_loss() ? backward_from_root(outputs, batch)
                                                       : backward_from_here(outputs, batch);
    parts_.feed.recycle(std::move(batch));
    return sums;
  }

 private:
  void doing(Activity activity) {
    parts_.exchange.session().watchdog().doing(activity, iteration_);
  }

  FeedBatch load() {
    doing(Activity::kData);
    const Scope timed(timer_, Phase::kData);
    return parts_.feed.next();
  }

  torch::Tensor forward(const FeedBatch& batch) {
    doing(Activity::kSynchronize);
    if (first_ && parts_.norms) parts_.norms->begin_iteration();
    parts_.mode.before_forward(last_);
    torch::Tensor images = batch.images;
    if (RootLoss* root = parts_.mode.root_loss())
      images = root->scatter_images(
          {batch.images, parts_.feed.samples_per_rank(index_), parts_.compute.layout, first_});
    doing(Activity::kForward);
    const AutocastScope autocast(parts_.compute.precision, parts_.compute.device.type());
    if (parts_.deferred) return forward_through(images);
    const Scope timed(timer_, Phase::kForward);
    return parts_.replica.network->forward(images);
  }

  /// In pieces: between them layers wait for their gradients and are stepped.
  torch::Tensor forward_through(const torch::Tensor& images) {
    Moment begin = timer_.stamp();
    torch::Tensor outputs =
        parts_.deferred->forward(images, [&](const DeferredUpdates::Parameters& parameters) {
          timer_.add(Phase::kForward, {begin, timer_.stamp()});
          doing(Activity::kSynchronize);
          parts_.deferred->wait(parameters);
          doing(Activity::kForward);
          {
            const Scope timed(timer_, Phase::kOptimizer);
            parts_.deferred->step(parameters);
          }
          begin = timer_.stamp();
        });
    timer_.add(Phase::kForward, {begin, timer_.stamp()});
    return outputs;
  }

  PassLoss loss_of(const torch::Tensor& logits, const FeedBatch& batch, int ranks) {
    const Scope timed(timer_, Phase::kForward);
    const double parts =
        static_cast<double>(samples_) / static_cast<double>(parts_.feed.samples_per_rank(index_));
    return cross_entropy(logits, batch.labels, ranks, parts, parts_.label_smoothing);
  }

  /// fp16: so that small gradients do not vanish; the optimizer takes them over the same scale.
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
    RootLoss& root = *parts_.mode.root_loss();
    const torch::Tensor logits = root.gather_outputs(outputs);
    PassLoss loss;
    torch::Tensor gradient;
    if (logits.defined()) {
      loss = loss_of(logits, batch, parts_.exchange.session().size());
      const Scope timed(timer_, Phase::kBackward);
      gradient = torch::autograd::grad({scaled(loss.loss)}, {logits})[0];
    }
    const LossShare share = root.scatter_gradient(gradient, loss.sums);
    backward(outputs, [&] { outputs.backward(share.gradient.to(outputs.scalar_type())); });
    return share.sums;
  }

  template <typename Run>
  void backward(const torch::Tensor& outputs, Run run) {
    parts_.mode.before_backward(outputs, last_);
    doing(Activity::kBackward);
    const ProfilerRange range = timer_.range(Phase::kBackward);
    const Moment begin = timer_.stamp();
    run();
    timer_.add(Phase::kBackward, {begin, parts_.mode.waits_in_backward() ? parts_.guard.last_seen()
                                                                         : timer_.stamp()});
  }

  StepParts& parts_;
  IterationTimer& timer_;
  std::int64_t iteration_, samples_, index_;
  bool first_, last_;
};

bool steps_here(const StepParts& parts) {
  return !parts.mode.root_loss() || parts.exchange.session().rank() == 0;
}

/// What gradients in host memory are to be multiplied by beside the loss scale.
double clip_factor_of(const StepParts& parts) {
  if (parts.clip_norm <= 0) return 1;
  const double scale =
      parts.optimizer.scales_loss() ? parts.optimizer.loss_scale().item<double>() : 1;
  return clip_factor(gradient_norm(parts.replica) / scale, parts.clip_norm);
}

std::vector<BucketShape> shapes_of(const std::vector<CollectiveRecord>& records) {
  std::vector<BucketShape> shapes;
  for (const CollectiveRecord& record : records)
    shapes.push_back({record.bytes, record.kind});
  return shapes;
}

/// Once all that is entered in them has ended.
void take_from_logs(PendingStep& pending) {
  const std::vector<CollectiveRecord> none;
  pending.timer.set_collectives(pending.iteration_log->records,
                                pending.deferred ? pending.deferred->records : none);
  pending.known.measured.traffic_bytes = pending.iteration_log->traffic;
  pending.known.buckets = shapes_of(pending.iteration_log->records);
  pending.iteration_log.reset();
}

/// One iteration of a rank, launched or replayed.
class Step {
 public:
  Step(StepParts& parts, std::int64_t iteration, std::int64_t step, double learning_rate)
      : parts_(parts),
        iteration_(iteration),
        learning_rate_(learning_rate),
        passes_(parts.feed.passes_of(step)),
        first_pass_(parts.feed.first_pass_of(step)),
        samples_(count_samples()),
        pending_{
            IterationTimer(parts.measured && !by_graph(), parts.exchange.lane()), {}, {}, {}, {}} {}

  PendingStep run() {
    const ProfilerRange range(parts_.exchange.lane(), "iteration", iteration_);
    parts_.exchange.log().begin_iteration(iteration_);
    seed_generators();
    pending_.timer.begin();
    pending_.known.samples = samples_;
    if (!by_graph() || !replay()) launch_and_note();
    doing(Activity::kBetween);
    return std::move(pending_);
  }

 private:
  void doing(Activity activity) {
    parts_.exchange.session().watchdog().doing(activity, iteration_);
  }

  /// What a network draws depends on the run, the rank and the iteration alone: not on what this
  /// process drew before, which no checkpoint holds.
  void seed_generators() const {
    at::manual_seed(mix(parts_.feed.seed(), stream::kIteration,
                        static_cast<std::uint64_t>(parts_.exchange.session().rank()),
                        static_cast<std::uint64_t>(iteration_)));
  }

  bool by_graph() const { return parts_.graph && parts_.graph->serves(samples_, passes_); }

  std::int64_t count_samples() const {
    std::int64_t all = 0;
    for (std::int64_t pass = 0; pass < passes_; ++pass)
      all += parts_.feed.samples_per_rank(first_pass_ + pass);
    return all;
  }

  void launch_and_note() {
    const torch::Tensor sums = launch([this] { update(); });
    if (parts_.graph) parts_.graph->note(samples_, passes_, parts_.exchange.log().traffic());
    close(sums, parts_.exchange.log().traffic());
  }

  /// From the batch to the new parameters; `update` makes those. Returns the sums.
  torch::Tensor launch(const std::function<void()>& update) {
    torch::Tensor sums;
    parts_.guard.reset(parts_.mode.waits_in_backward());
    for (std::int64_t pass = 0; pass < passes_; ++pass) {
      const torch::Tensor one = Pass(parts_, pending_.timer, iteration_, samples_,
                                     first_pass_ + pass, pass == 0, pass + 1 == passes_)
                                    .run();
      sums = sums.defined() ? sums + one : one;
    }
    parts_.guard.note_places();
    if (parts_.defers())
      parts_.deferred->carry(learning_rate_);
    else
      synchronize_and(update);
    return sums;
  }

  void synchronize_and(const std::function<void()>& update) {
    doing(Activity::kSynchronize);
    parts_.mode.synchronize();
    parts_.guard.look_at_rest();
    doing(Activity::kOptimizer);
    update();
  }

  /// Averaged gradients become new parameters.
  void update() {
    if (!steps_here(parts_)) return;
    const Scope timed(pending_.timer, Phase::kOptimizer);
    if (!parts_.exchange.lane())
      return parts_.optimizer.step(learning_rate_, clip_factor_of(parts_));
    parts_.optimizer.prepare(learning_rate_, /*gradient_scale=*/1);
    apply_on_device();
  }

  /// The host knows neither norm nor factor. A graph can capture it.
  void apply_on_device() {
    Optimizer& optimizer = parts_.optimizer;
    if (parts_.clip_norm > 0)
      optimizer.scale_gradients(
          clip_factor_on_device(parts_.replica, parts_.clip_norm, optimizer.loss_scale()));
    optimizer.apply();
  }

  /// False if the step could not be captured: nothing has run, and all is as it was before.
  bool replay() {
    StepGraph& graph = *parts_.graph;
    parts_.optimizer.prepare(learning_rate_, /*gradient_scale=*/1);
    if (!graph.captured()) {
      if (!capture()) return false;
    } else {
      parts_.feed.skip(passes_);
      ++parts_.optimizer.steps();
    }
    graph.replay(parts_.exchange.session().ledger());
    close(graph.sums(), graph.traffic());
    return true;
  }

  /// All ranks or none.
  bool capture() {
    const std::int64_t steps = parts_.optimizer.steps(), made = parts_.feed.made();
    parts_.exchange.log().set_timing(false);
    const bool mine =
        parts_.graph->capture([this] { return launch([this] { apply_on_device(); }); },
                              parts_.exchange.session().ledger());
    std::array<double, 1> failed = {mine ? 0.0 : 1.0};
    parts_.exchange.session().sum(failed);
    parts_.exchange.log().set_timing(parts_.measured);
    if (failed[0] == 0) return true;
    parts_.graph->give_up("another rank could not capture it");
    parts_.optimizer.steps() = steps;
    parts_.feed.skip(made - parts_.feed.made());
    pending_.timer = IterationTimer(parts_.measured, parts_.exchange.lane());
    pending_.timer.begin();
    return false;
  }

  /// What is known of the iteration when everything of it was started.
  void close(const torch::Tensor& sums, const TrafficBytes& traffic) {
    pending_.finding = parts_.guard.finding();
    pending_.sums = to_host(sums);
    if (parts_.optimizer.scales_loss())
      pending_.loss_scale = to_host(parts_.optimizer.loss_scale());
    pending_.timer.stop(parts_.norms ? parts_.norms->waits() : std::vector<Span>());
    pending_.known.bad_tensor = parts_.guard.first_bad();
    if (parts_.deferred) return keep_logs();
    pending_.timer.set_collectives(parts_.exchange.log().records());
    pending_.known.measured.traffic_bytes = traffic;
    pending_.known.buckets = shapes_of(parts_.exchange.log().records());
  }

  void keep_logs() {
    pending_.iteration_log = parts_.exchange.log().current();
    pending_.deferred = parts_.deferred->swap_log(pending_.iteration_log);
    if (!parts_.defers()) take_from_logs(pending_);
  }

  StepParts& parts_;
  std::int64_t iteration_;
  double learning_rate_;
  std::int64_t passes_, first_pass_, samples_;
  PendingStep pending_;
};

}  // namespace

PendingStep run_step(StepParts& parts, std::int64_t iteration, std::int64_t step,
                     double learning_rate) {
  return Step(parts, iteration, step, learning_rate).run();
}

void take_collectives(PendingStep& pending) {
  if (pending.iteration_log) take_from_logs(pending);
}

StepResult finish_step(PendingStep& pending, const Replica& replica) {
  StepResult result = pending.known;
  const auto traffic = result.measured.traffic_bytes;
  result.measured = pending.timer.result();
  result.measured.traffic_bytes = traffic;
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
