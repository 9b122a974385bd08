// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <functional>

#include <ATen/Context.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/functional/loss.h>

#include "data/sampler.h"
#include "machine/lane.h"
#include "model/batch_norm.h"
#include "optim/optimizer.h"
#include "stats/clock.h"
#include "stats/random.h"
#include "train/gradient_guard.h"
#include "train/iteration.h"
#include "train/rank_state.h"

namespace gradsync {

PassLoss cross_entropy(const torch::Tensor& logits, const torch::Tensor& labels, int ranks,
                       double parts, double label_smoothing) {
  const torch::Tensor values = logits.to(torch::kFloat32);
  torch::Tensor per_sample =
      torch::nn::functional::cross_entropy(values.flatten(0, -2), labels.flatten(),
                                           torch::nn::functional::CrossEntropyFuncOptions()
                                               .reduction(torch::kNone)
                                               .label_smoothing(label_smoothing));
  const bool tokens = labels.dim() == 2;
  if (tokens) per_sample = per_sample.view_as(labels).mean(1);
  PassLoss result;
  result.loss = per_sample.mean() / parts;
  const torch::NoGradGuard no_grad;
  const torch::Tensor losses = per_sample.to(torch::kFloat64).view({ranks, -1}).sum(1);
  const torch::Tensor answers = values.argmax(-1).eq(labels);
  const torch::Tensor right =
      (tokens ? answers.select(1, -1) : answers).reshape({ranks, -1}).sum(1).to(torch::kFloat64);
  result.sums = torch::stack({losses, right}, 1);
  return result;
}

NormExchange::NormExchange(BatchNormMode how, Exchange& exchange, SyncMode& mode, Replica& replica)
    : exchange_(exchange),
      replica_(replica),
      // A root that steps alone hands its buffers out with its parameters.
      broadcasts_(how == BatchNormMode::kBroadcast && !mode.root_loss()) {
  if (how == BatchNormMode::kSync)
    share_statistics(*replica.network, {[this](std::span<float> values) { mean(values); },
                                        exchange.session().size()});
}

NormExchange::~NormExchange() {
  share_statistics(*replica_.network, {});
}

void NormExchange::begin_iteration() {
  waits_.clear();
  if (broadcasts_) broadcast_buffers(exchange_, replica_);
}

void NormExchange::mean(std::span<float> values) {
  const Moment begin = exchange_.now();
  exchange_.run(Collective::all_reduce(values, Scale::kAverage), Traffic::kBuffers);
  waits_.push_back({begin, exchange_.now()});
}

namespace {

/// Removes the callback at the end of the forward pass, also after an exception.
class OpenGate {
 public:
  OpenGate(Network& network, Gate gate) : network_(network) { network_.set_gate(std::move(gate)); }
  ~OpenGate() { network_.set_gate({}); }
  OpenGate(const OpenGate&) = delete;
  OpenGate& operator=(const OpenGate&) = delete;

 private:
  Network& network_;
};

}  // namespace

DeferredUpdates::DeferredUpdates(Replica& replica, DeferredGradients& gradients,
                                 Optimizer& optimizer)
    : replica_(replica),
      gradients_(gradients),
      optimizer_(optimizer),
      pending_(replica.parameters.size(), false) {
  for (const Network::Layer& layer : replica.network->layers())
    parameters_of_[layer.module] = replica.parameters_of(*layer.module);
}

void DeferredUpdates::carry(double learning_rate) {
  optimizer_.begin_step(learning_rate);
  pending_.assign(pending_.size(), true);
}

torch::Tensor DeferredUpdates::forward(const torch::Tensor& images,
                                       const std::function<void(const Parameters&)>& before) {
  const auto settle = [&](const Parameters& parameters) {
    if (!parameters.empty()) before(parameters);
  };
  const OpenGate gate(*replica_.network,
                      [&](const torch::nn::Module& layer) { settle(pending_of(layer)); });
  torch::Tensor outputs = replica_.network->forward(images);
  settle(all_pending());
  return outputs;
}

void DeferredUpdates::step(const Parameters& parameters) {
  for (const std::size_t parameter : parameters) {
    optimizer_.step_parameter(parameter);
    pending_[parameter] = false;
  }
}

DeferredUpdates::Parameters DeferredUpdates::pending_of(const torch::nn::Module& layer) const {
  Parameters pending = parameters_of_.at(&layer);
  std::erase_if(pending, [&](std::size_t parameter) { return !pending_[parameter]; });
  return pending;
}

DeferredUpdates::Parameters DeferredUpdates::all_pending() const {
  Parameters pending;
  for (std::size_t parameter = 0; parameter < pending_.size(); ++parameter)
    if (pending_[parameter]) pending.push_back(parameter);
  return pending;
}

namespace {

using Scope = IterationTimer::Scope;

/// One pass of an iteration.
class Pass {
 public:
  /// `samples`: of this rank in the iteration.
  Pass(RankTraining& training, IterationTimer& timer, std::int64_t iteration, std::int64_t samples,
       std::int64_t index, bool first, bool last)
      : training_(training),
        timer_(timer),
        iteration_(iteration),
        samples_(samples),
        index_(index),
        first_(first),
        last_(last) {}

  /// Returns the sums of the rank's samples, as PassLoss::sums has them.
  torch::Tensor run() {
    FeedBatch batch = load();
    const Stopwatch watch;
    const torch::Tensor outputs = forward(batch);
    const double slowdown = training_.options.inject_fault.slowdown(
        FaultKind::kSlow, training_.exchange.session().rank());
    if (slowdown > 1) compute_for((slowdown - 1) * watch.elapsed_s());
    const torch::Tensor sums = training_.mode->root_loss() ? backward_from_root(outputs, batch)
                                                           : backward_from_here(outputs, batch);
    training_.feed.recycle(std::move(batch));
    return sums;
  }

 private:
  void doing(Activity activity) {
    training_.exchange.session().watchdog().doing(activity, iteration_);
  }

  FeedBatch load() {
    doing(Activity::kData);
    const Scope timed(timer_, Phase::kData);
    return training_.feed.next();
  }

  torch::Tensor forward(const FeedBatch& batch) {
    doing(Activity::kSynchronize);
    if (first_) training_.norms.begin_iteration();
    training_.mode->before_forward(last_);
    torch::Tensor images = batch.images;
    if (RootLoss* root = training_.mode->root_loss())
      images = root->scatter_images({batch.images, training_.feed.samples_per_rank(index_),
                                     training_.compute.layout, first_});
    doing(Activity::kForward);
    const AutocastScope autocast(training_.compute.precision, training_.compute.device.type());
    if (training_.deferred) return forward_through(images);
    const Scope timed(timer_, Phase::kForward);
    const OpenGate gate(*training_.replica.network, training_.mode->gate());
    return training_.replica.network->forward(images);
  }

  /// Runs the forward pass in pieces, between which layers wait for their gradients and are
  /// stepped.
  torch::Tensor forward_through(const torch::Tensor& images) {
    Moment begin = timer_.stamp();
    torch::Tensor outputs =
        training_.deferred->forward(images, [&](const DeferredUpdates::Parameters& parameters) {
          timer_.add(Phase::kForward, {begin, timer_.stamp()});
          doing(Activity::kSynchronize);
          training_.deferred->wait(parameters);
          doing(Activity::kForward);
          {
            const Scope timed(timer_, Phase::kOptimizer);
            training_.deferred->step(parameters);
          }
          begin = timer_.stamp();
        });
    timer_.add(Phase::kForward, {begin, timer_.stamp()});
    return outputs;
  }

  /// A rank that sleeps would have fewer cores, and not be slow.
  void compute_for(double time_s) {
    const Scope timed(timer_, Phase::kForward);
    for (const Stopwatch watch; watch.elapsed_s() < time_s;) {
    }
  }

  PassLoss loss_of(const torch::Tensor& logits, const FeedBatch& batch, int ranks) {
    const Scope timed(timer_, Phase::kForward);
    const double parts = static_cast<double>(samples_) /
                         static_cast<double>(training_.feed.samples_per_rank(index_));
    return cross_entropy(logits, batch.labels, ranks, parts, training_.options.label_smoothing);
  }

  /// fp16: so that small gradients do not vanish; the optimizer takes them over the same scale.
  torch::Tensor scaled(const torch::Tensor& loss) const {
    return training_.optimizer->scales_loss() ? loss * training_.optimizer->loss_scale() : loss;
  }

  torch::Tensor backward_from_here(const torch::Tensor& outputs, const FeedBatch& batch) {
    const PassLoss loss = loss_of(outputs, batch, /*ranks=*/1);
    backward(outputs, [&] { scaled(loss.loss).backward(); });
    return loss.sums[0];
  }

  torch::Tensor backward_from_root(const torch::Tensor& outputs, const FeedBatch& batch) {
    doing(Activity::kSynchronize);
    RootLoss& root = *training_.mode->root_loss();
    const torch::Tensor logits = root.gather_outputs(outputs);
    PassLoss loss;
    torch::Tensor gradient;
    if (logits.defined()) {
      loss = loss_of(logits, batch, training_.exchange.session().size());
      const Scope timed(timer_, Phase::kBackward);
      gradient = torch::autograd::grad({scaled(loss.loss)}, {logits})[0];
    }
    const LossShare share = root.scatter_gradient(gradient, loss.sums);
    backward(outputs, [&] { outputs.backward(share.gradient.to(outputs.scalar_type())); });
    return share.sums;
  }

  template <typename Run>
  void backward(const torch::Tensor& outputs, Run run) {
    training_.mode->before_backward(outputs, last_);
    doing(Activity::kBackward);
    const ProfilerRange range = timer_.range(Phase::kBackward);
    const Moment begin = timer_.stamp();
    run();
    timer_.add(Phase::kBackward,
               {begin, training_.mode->waits_in_backward() ? training_.guard.last_seen()
                                                           : timer_.stamp()});
  }

  RankTraining& training_;
  IterationTimer& timer_;
  std::int64_t iteration_, samples_, index_;
  bool first_, last_;
};

bool steps_here(const RankTraining& training) {
  return !training.mode->root_loss() || training.exchange.session().rank() == 0;
}

std::vector<BucketShape> shapes_of(const std::vector<CollectiveRecord>& records) {
  std::vector<BucketShape> shapes;
  for (const CollectiveRecord& record : records)
    shapes.push_back({record.bytes, record.kind});
  return shapes;
}

/// One iteration of a rank, launched or replayed.
class Iteration {
 public:
  Iteration(RankTraining& training, std::int64_t iteration, std::int64_t step, double learning_rate)
      : training_(training),
        iteration_(iteration),
        learning_rate_(learning_rate),
        passes_(training.feed.passes_of(step)),
        first_pass_(training.feed.first_pass_of(step)),
        samples_(count_samples()) {
    IterationRow& row = started_.known.row;
    row.iteration = iteration;
    row.step = step;
    row.learning_rate = learning_rate;
    started_.known.samples = samples_;
    started_.timer =
        IterationTimer(!training.options.no_stamps && !by_graph(), training.exchange.lane());
  }

  StartedIteration run() {
    const ProfilerRange range(training_.exchange.lane(), "iteration", iteration_);
    training_.exchange.log().begin_iteration(iteration_);
    seed_generators();
    started_.timer.begin();
    if (!by_graph() || !replay()) launch_and_note();
    doing(Activity::kBetween);
    return std::move(started_);
  }

 private:
  void doing(Activity activity) {
    training_.exchange.session().watchdog().doing(activity, iteration_);
  }

  /// What a network draws depends on the run, the rank and the iteration alone: not on what this
  /// process drew before, which no checkpoint holds.
  void seed_generators() const {
    at::manual_seed(mix(training_.options.seed, stream::kIteration,
                        static_cast<std::uint64_t>(training_.exchange.session().rank()),
                        static_cast<std::uint64_t>(iteration_)));
  }

  bool by_graph() const { return training_.graph && training_.graph->serves(samples_, passes_); }

  std::int64_t count_samples() const {
    std::int64_t all = 0;
    for (std::int64_t pass = 0; pass < passes_; ++pass)
      all += training_.feed.samples_per_rank(first_pass_ + pass);
    return all;
  }

  void launch_and_note() {
    const torch::Tensor sums = launch([this] { update(); });
    if (training_.graph)
      training_.graph->note(samples_, passes_, training_.exchange.log().traffic());
    close(sums, training_.exchange.log().traffic());
  }

  /// Enqueues everything from the batch to the new parameters, which `update` makes. Returns the
  /// sums.
  torch::Tensor launch(const std::function<void()>& update) {
    torch::Tensor sums;
    training_.guard.reset(training_.mode->waits_in_backward());
    for (std::int64_t pass = 0; pass < passes_; ++pass) {
      const torch::Tensor one = Pass(training_, started_.timer, iteration_, samples_,
                                     first_pass_ + pass, pass == 0, pass + 1 == passes_)
                                    .run();
      sums = sums.defined() ? sums + one : one;
    }
    training_.guard.note_places();
    if (training_.defers())
      training_.deferred->carry(learning_rate_);
    else
      synchronize_and(update);
    return sums;
  }

  void synchronize_and(const std::function<void()>& update) {
    doing(Activity::kSynchronize);
    // What travels of them is encoded: in what comes back a NaN is that of every rank.
    if (!mode_named(training_.options.sync).changes.empty()) training_.guard.look_at_rest();
    training_.mode->synchronize();
    training_.guard.look_at_rest();
    doing(Activity::kOptimizer);
    update();
    doing(Activity::kSynchronize);
    training_.mode->after_update();
  }

  /// Averaged gradients become new parameters.
  void update() {
    if (!steps_here(training_)) return;
    const torch::Tensor norm = norm_of_gradients();
    const Scope timed(started_.timer, Phase::kOptimizer);
    if (!training_.exchange.lane())
      return training_.optimizer->step(learning_rate_, clip_factor_for(norm));
    training_.optimizer->prepare(learning_rate_, /*gradient_scale=*/1);
    apply_on_device(norm);
  }

  /// Norm of the averaged gradients: float64 of no dimension, where they lie; undefined where no
  /// step depends on it. Ranks that have a part each tell each other its norm, and where one's has
  /// overflown, all find that theirs has.
  torch::Tensor norm_of_gradients() {
    const bool in_parts = mode_named(training_.options.sync).sharded,
               may_overflow = in_parts && training_.optimizer->scales_loss();
    if (training_.options.clip_norm <= 0 && !may_overflow) return {};
    const Replica& stepped = training_.optimizer->stepped();
    torch::Tensor own;
    {
      const Scope timed(started_.timer, Phase::kOptimizer);
      own = training_.exchange.lane() ? gradient_norm_on_device(stepped)
                                      : torch::tensor(gradient_norm(stepped), torch::kFloat64);
    }
    if (!in_parts) return own;
    const auto ranks = static_cast<std::size_t>(training_.exchange.session().size());
    const torch::Tensor norms = torch::empty({training_.exchange.session().size()}, own.options());
    training_.exchange.run(
        Collective::all_gather(std::as_bytes(std::span(own.data_ptr<double>(), 1)),
                               std::as_writable_bytes(std::span(norms.data_ptr<double>(), ranks))),
        Traffic::kControl);
    torch::Tensor norm = norms.norm();
    if (may_overflow) stepped.parameters[0].grad().narrow(0, 0, 1).add_(0 * norm);  // 0, or a NaN
    return norm;
  }

  /// What gradients in host memory are to be multiplied by beside the loss scale.
  double clip_factor_for(const torch::Tensor& norm) const {
    if (!norm.defined()) return 1;
    const Optimizer& optimizer = *training_.optimizer;
    const double scale = optimizer.scales_loss() ? optimizer.loss_scale().item<double>() : 1;
    return clip_factor(norm.item<double>() / scale, training_.options.clip_norm);
  }

  /// The host knows neither norm nor factor. A graph can capture it.
  void apply_on_device(const torch::Tensor& norm) {
    Optimizer& optimizer = *training_.optimizer;
    if (training_.options.clip_norm > 0)
      optimizer.scale_gradients(
          clip_factor_on_device(norm, training_.options.clip_norm, optimizer.loss_scale()));
    optimizer.apply();
  }

  /// False if the step could not be captured: nothing has run, and all is as it was before.
  bool replay() {
    StepGraph& graph = *training_.graph;
    training_.optimizer->prepare(learning_rate_, /*gradient_scale=*/1);
    if (!graph.captured()) {
      if (!capture()) return false;
    } else {
      training_.feed.skip(passes_);
      ++training_.optimizer->steps();
    }
    graph.replay(training_.exchange.session().ledger());
    close(graph.sums(), graph.traffic());
    return true;
  }

  /// All ranks or none.
  bool capture() {
    const std::int64_t steps = training_.optimizer->steps(), made = training_.feed.made();
    training_.exchange.log().set_timing(false);
    const torch::Device& device = training_.compute.device;
    if (device.is_cuda()) reset_peak_device_bytes(device);
    const bool mine = training_.graph->capture(
        [this] { return launch([this] { apply_on_device(norm_of_gradients()); }); },
        training_.exchange.session().ledger());
    if (device.is_cuda()) training_.peak_of_capture_bytes = peak_device_bytes(device);
    std::array<double, 1> failed = {mine ? 0.0 : 1.0};
    training_.exchange.session().sum(failed);
    training_.exchange.log().set_timing(!training_.options.no_stamps);
    if (failed[0] == 0) return true;
    const auto whys = training_.exchange.session().gather(training_.graph->why_not());
    const auto first = std::ranges::find_if_not(whys, &std::string::empty);
    training_.graph->give_up(first == whys.end()
                                 ? "another rank could not capture it"
                                 : fmt::format("rank {}: {}", first - whys.begin(), *first));
    training_.optimizer->steps() = steps;
    training_.feed.skip(made - training_.feed.made());
    started_.timer = IterationTimer(!training_.options.no_stamps, training_.exchange.lane());
    started_.timer.begin();
    return false;
  }

  /// Notes what is known when everything of the iteration was started.
  void close(const torch::Tensor& sums, const TrafficBytes& traffic) {
    started_.finding = training_.guard.finding();
    started_.sums = to_host(sums);
    if (training_.optimizer->scales_loss())
      started_.loss_scale = to_host(training_.optimizer->loss_scale());
    std::vector<Span> waits = training_.mode->take_waits();
    waits.insert(waits.end(), training_.norms.waits().begin(), training_.norms.waits().end());
    started_.timer.stop(waits);
    started_.known.bad_tensor = training_.guard.first_bad();
    if (training_.deferred) return keep_logs();
    started_.timer.set_collectives(training_.exchange.log().records());
    started_.timer.set_encoding(training_.exchange.log().current()->encode_s);
    started_.known.measured.traffic_bytes = traffic;
    started_.known.row.buckets = shapes_of(training_.exchange.log().records());
  }

  void keep_logs() {
    started_.own_log = training_.exchange.log().current();
    started_.previous_log = training_.deferred->swap_log(started_.own_log);
    if (!training_.defers()) started_.take_collectives();
  }

  RankTraining& training_;
  std::int64_t iteration_;
  double learning_rate_;
  std::int64_t passes_, first_pass_, samples_;
  StartedIteration started_;
};

}  // namespace

RankTraining::RankTraining(Exchange& of_ranks, Replica trained, const DataSource& data,
                           const ComputeSettings& settings, const TrainOptions& of_run)
    : exchange(of_ranks),
      compute(settings),
      options(of_run),
      replica(std::move(trained)),
      guard(replica, exchange),
      mode(make_sync_mode(options.sync, exchange, options)),
      norms(options.batch_norm, exchange, *mode, replica),
      feed(data, options, compute.layout, exchange.session().rank(), exchange.session().size(),
           feed_share(*mode, exchange.session().rank())) {
  mode->attach(replica);
  optimizer = make_optimizer(mode->stepped(replica), options.optimizer);
  if (DeferredGradients* gradients = mode->deferred())
    deferred = std::make_unique<DeferredUpdates>(replica, *gradients, *optimizer);
  exchange.log().set_timing(!options.no_stamps);
}

StartedIteration start_iteration(RankTraining& training, std::int64_t iteration, std::int64_t step,
                                 double learning_rate) {
  return Iteration(training, iteration, step, learning_rate).run();
}

void StartedIteration::take_collectives() {
  if (!own_log) return;
  timer.set_collectives(own_log->records,
                        previous_log ? previous_log->records : std::vector<CollectiveRecord>());
  known.measured.traffic_bytes = own_log->traffic;
  known.row.buckets = shapes_of(own_log->records);
  own_log.reset();
}

FinishedIteration StartedIteration::finish(const Replica& replica) {
  FinishedIteration result = known;
  result.measured = timer.result();
  result.measured.traffic_bytes = known.measured.traffic_bytes;
  const double* numbers = sums.data_ptr<double>();
  result.measured.loss = numbers[0] / static_cast<double>(result.samples);
  result.measured.correct = static_cast<std::int64_t>(numbers[1]);
  if (finding.lowest.defined()) result.bad_tensor = GradientGuard::first_bad(finding, replica);
  result.scale_may_fall = loss_scale.defined() && loss_scale.item<float>() >= kLowestLossScale;
  return result;
}

namespace {

/// Σ loss and right answers over this rank's share of the test images; repeats that only fill the
/// last batch are left out.
std::array<double, 2> sums_of_share(RankTraining& training, const DataSource& data,
                                    const Sampler& sampler, int rank) {
  LoaderOptions how;
  how.split = Split::kTest;
  how.steps = sampler.steps();
  how.layout = training.compute.layout;
  how.threads = training.options.loader_threads;
  const auto source =
      make_batch_source(data, data.resident ? data.resident->type() : ImageType::kFloat32);
  source->begin([&](std::int64_t step) { return sampler.batch(step); }, how);
  const torch::Device device = training.replica.parameters[0].device();
  torch::Tensor sums = torch::zeros({2}, torch::TensorOptions(device).dtype(torch::kFloat64));
  const torch::NoGradGuard no_grad;
  const AutocastScope autocast(training.compute.precision, training.compute.device.type());
  for (std::int64_t step = 0; step < sampler.steps(); ++step) {
    FeedBatch batch = source->next();
    const std::int64_t counted = sampler.unrepeated(step, rank);
    const torch::Tensor logits =
        training.replica.network->forward(batch.images).narrow(0, 0, counted);
    if (counted > 0)
      sums += cross_entropy(logits, batch.labels.narrow(0, 0, counted), 1, 1).sums[0];
    source->recycle(std::move(batch));
  }
  training.exchange.await(training.exchange.now().mark);
  sums = sums.cpu();
  return {sums[0].item<double>(), sums[1].item<double>()};
}

}  // namespace

EvaluateHow evaluate_how(const TrainOptions& options, int ranks) {
  const bool each_rank =
      options.evaluate == EvaluateHow::kEachRank || replicas_may_differ(options, ranks);
  return each_rank ? EvaluateHow::kEachRank : EvaluateHow::kShard;
}

Evaluation evaluate(RankTraining& training, const DataSource& data, EvaluateHow how) {
  const bool shard = how == EvaluateHow::kShard;
  const int rank = shard ? training.exchange.session().rank() : 0,
            ranks = shard ? training.exchange.session().size() : 1;
  const Stopwatch watch;
  const ProfilerRange range(training.exchange.lane(), "evaluation");
  // A log of its own: messages that the last iteration left to the next one end in that one's.
  CollectiveLog& log = training.exchange.log();
  log.begin_iteration(log.current()->iteration);
  training.mode->publish();
  if (shard) broadcast_buffers(training.exchange, training.replica);
  // Behind a rank that is gone, launches of all batches would fill the device's queue.
  training.exchange.await(training.exchange.now().mark);
  training.replica.network->eval();
  at::manual_seed(mix(training.options.seed, stream::kEvaluation,
                      static_cast<std::uint64_t>(training.exchange.session().rank())));
  const Sampler sampler(data.size(Split::kTest), rank, ranks, training.options.batch_per_rank, 0,
                        LastBatch::kPad,
                        /*shuffle=*/false);
  auto all = sums_of_share(training, data, sampler, rank);
  training.replica.network->train();
  training.mode->withdraw();
  if (shard) training.exchange.session().sum(all);
  const auto images = static_cast<double>(data.size(Split::kTest));
  return {all[0] / images, all[1] / images, watch.elapsed_s()};
}

void broadcast_buffers(Exchange& exchange, Replica& replica) {
  for (torch::Tensor& buffer : replica.buffers)
    if (buffer.is_floating_point())
      exchange.run(
          Collective::broadcast(
              std::span(buffer.data_ptr<float>(), static_cast<std::size_t>(buffer.numel())), kRoot),
          Traffic::kBuffers);
}

}  // namespace gradsync
