#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <new>
#include <numeric>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "options/options.h"
#include "train/rank_device.h"
#include "train/replica_facts.h"
#include "train/trainer.h"
#include "train/verify_modes.h"
#include "train/windows.h"

namespace gradsync {

namespace {

/// Of an automatic timeout.
constexpr double kShortestTimeout_s = 60;
/// Iterations after which a process knows its median.
constexpr std::int64_t kFirstIterations = 3;

double mean_loss(const IterationRow& row) {
  double sum = 0;
  for (const RankIteration& rank : row.ranks)
    sum += rank.loss;
  return sum / static_cast<double>(row.ranks.size());
}

/// One rank a host reads its counters.
std::function<HostReading()> read_host(const Session& session) {
  if (session.local_rank() != 0) return {};
  return [counters = HostCounters()]() mutable { return counters.read(); };
}

/// Does to this rank what --inject-fault asked for, before an iteration: at once, or to the next
/// gradient or collective. Some kinds do not return.
void inject_fault(FaultKind kind, Exchange& exchange, GradientGuard& guard,
                  std::int64_t iteration) {
  switch (kind) {
    case FaultKind::kNone:
      break;
    case FaultKind::kNotANumber:
      guard.poison_next();
      break;
    case FaultKind::kKill:
      std::raise(SIGKILL);
      break;
    case FaultKind::kStop:
      std::raise(SIGSTOP);
      break;
    case FaultKind::kLeave:
      exchange.session().watchdog().doing(Activity::kFinished, iteration);
      exchange.session().leave();
    case FaultKind::kSkip:
      exchange.log().inject(CollectiveFault::kSkip);
      break;
    case FaultKind::kShort:
      exchange.log().inject(CollectiveFault::kShort);
      break;
    case FaultKind::kOtherType:
      exchange.log().inject(CollectiveFault::kOtherType);
      break;
    case FaultKind::kOtherRoot:
      exchange.log().inject(CollectiveFault::kOtherRoot);
      break;
    case FaultKind::kOutOfMemory:
      throw std::bad_alloc();
    case FaultKind::kUsr1:
      std::raise(SIGUSR1);
      break;
    case FaultKind::kTerm:
      std::raise(SIGTERM);
      break;
    case FaultKind::kDelay:
      std::this_thread::sleep_for(std::chrono::duration<double>(kDelay_s));
      break;
  }
}

}  // namespace

Trainer::Trainer(Exchange& exchange, const RunSetting& setting)
    : exchange_(exchange),
      setting_(setting),
      options_(setting.options),
      replica_(first_replica(exchange, options_, setting.compute.layout, setting.compute.device)),
      guard_(replica_, exchange),
      mode_(make_sync_mode(options_.sync, exchange, sync_settings(options_))),
      norms_(options_.batch_norm, exchange, *mode_, replica_),
      optimizer_(make_optimizer(replica_, options_.optimizer)),
      rate_(options_.learning_rate),
      warmup_(options_),
      feed_(setting.data, options_, setting.compute.layout, exchange.session().rank(),
            exchange.session().size(), feed_share(*mode_, exchange.session().rank())),
      epoch_lengths_(
          epoch_lengths(options_, setting.data.size(Split::kTrain), exchange.session().size())),
      parts_{replica_,
             *mode_,
             *optimizer_,
             feed_,
             guard_,
             exchange,
             setting.compute,
             &norms_,
             options_.clip_norm,
             options_.label_smoothing},
      deferred_(deferred_updates(replica_, *mode_, *optimizer_)),
      pipeline_(exchange, replica_, setting.clock_offset_s),
      fault_(options_.inject_fault),
      host_samples_(read_host(exchange.session()), kHostInterval_s),
      progress_(exchange.session().rank() == 0 && !setting.quiet, options_.log_every,
                std::accumulate(epoch_lengths_.begin(), epoch_lengths_.end(), std::int64_t{0})),
      checkpoints_(
          exchange, setting_,
          {replica_, *optimizer_, *mode_, summary_, epoch_summary_, epoch_clock_, buckets_}) {
  if (setting.compute.device.is_cuda()) gpu_samples_.emplace(read_gpu(), kGpuInterval_s);
  if (options_.graph) use_graph();
  parts_.deferred = deferred_.get();
  mode_->attach(replica_);
  position_ = checkpoints_.restore();
  exchange_.log().start_at(position_.iteration);
  progress_.begin_at(position_.iteration);
  count_batches_before();
  first_iteration_ = position_.iteration;
}

void Trainer::run(ProgramOutput& output) {
  const WatchdogTimeoutExtension trains(exchange_.session().watchdog(), WatchedPhase::kTraining);
  traffic_at_start_ = exchange_.session().ledger().total();
  while (position_.epoch < options_.epochs && iterations_of(position_.epoch) > 0 &&
         !target_reached())
    run_epoch();
  progress_.clear();
  checkpoints_.end_training();
  close_training();
  checkpoints_.after_training(position_);
  const Table table = summary_.gather(exchange_, setting_.places, options_.warmup);
  double exposed_s = summary_.mean_exposed_s() / static_cast<double>(exchange_.session().size());
  if (setting_.buckets) exchange_.session().sum({&exposed_s, 1});
  if (exchange_.session().rank() != 0) return;
  output.print(table);
  if (setting_.buckets)
    std::cout << fmt::format(
        "bucket cap auto: {:.2f} ms exposed as predicted, {:.2f} ms measured\n",
        1e3 * setting_.buckets->chosen.exposed_s, 1e3 * exposed_s);
}

void Trainer::run_counterfactual(ProgramOutput& output) {
  const WatchdogTimeoutExtension measures(exchange_.session().watchdog(),
                                          WatchedPhase::kCounterfactual);
  exchange_.await(exchange_.now().mark);
  const std::string before = parameter_hash(replica_);
  const auto rows = run_windows(exchange_, setting_,
                                {replica_, buckets_, position_.iteration,
                                 [this] { checkpoints_.stop_if_wanted(position_); }});
  if (parameter_hash(replica_) != before)
    throw Error(ExitCode::kInternal, "the windows of --counterfactual changed the trained network");
  if (exchange_.session().rank() != 0) return;
  for (const WindowRow& row : rows)
    if (setting_.recorder) setting_.recorder->add(row);
  const Table table = windows_table(rows);
  print_text(std::cout, table);  // its notes are the results
  output.add(table);
}

void Trainer::use_graph() {
  const std::string obstacle = graph_obstacle(options_);
  if (obstacle.empty())
    parts_.graph = &graph_.emplace();
  else if (exchange_.session().rank() == 0)
    print_warning("gradsync-train", fmt::format("--graph has no effect, because of {}", obstacle));
}

void Trainer::say_if_graph_failed() {
  if (!parts_.graph || graph_->why_not().empty()) return;
  parts_.graph = nullptr;
  if (exchange_.session().rank() == 0)
    print_warning("gradsync-train",
                  fmt::format("--graph: steps are launched one by one, because a step could not be "
                              "captured: {}",
                              graph_->why_not()));
}

void Trainer::run_iteration() {
  const bool first = position_.iteration - first_iteration_ < kFirstIterations;
  const WatchdogTimeoutExtension phase(
      exchange_.session().watchdog(),
      first ? WatchedPhase::kFirstIterations : WatchedPhase::kTraining);
  if (fault_.due(exchange_.session().rank(), position_.iteration))
    inject_fault(fault_.kind, exchange_, guard_, position_.iteration);
  IterationRow row;
  row.iteration = position_.iteration;
  row.epoch = position_.epoch;
  row.step = position_.step;
  row.learning_rate = learning_rate();
  row.warmup = warms_up();
  leave_warmup_out_of_peak(row.warmup);
  parts_.completes = completes_next();
  PendingStep step = run_step(parts_, row.iteration, row.step, row.learning_rate);
  const bool last_of_epoch = position_.step + 1 == iterations_of(position_.epoch);
  step.known.stop = checkpoints_.wanted(last_of_epoch && options_.evaluate != "none");
  // A replayed step says nothing of its collectives: they are those of the steps before.
  if (!parts_.deferred && (!parts_.graph || !step.known.buckets.empty()))
    buckets_ = step.known.buckets;
  say_if_graph_failed();
  pipeline_.push({std::move(row), std::move(step)});
  ++position_.iteration;
  ++position_.step;
  if (parts_.defers()) return;
  const Verdict verdict = finish_iterations(parts_.deferred || checkpoints_.due(position_));
  adapt_timeout();
  checkpoints_.after_iteration(position_, verdict);
}

bool Trainer::warms_up() {
  std::vector<std::int64_t> passes;
  const std::int64_t first = feed_.first_pass_of(position_.step);
  for (std::int64_t pass = 0; pass < feed_.passes_of(position_.step); ++pass)
    passes.push_back(feed_.samples_per_rank(first + pass));
  return warmup_.counts(position_.iteration, passes);
}

/// cuDNN's search takes memory that no later step does.
void Trainer::leave_warmup_out_of_peak(bool warmup) {
  if (!warmup && std::exchange(peak_holds_warmup_, false))
    reset_peak_device_bytes(setting_.compute.device);
  if (setting_.compute.device.is_cuda()) peak_holds_warmup_ |= warmup;
}

/// Whether the next iteration is waited for, in a mode that carries; the same on all ranks.
bool Trainer::completes_next() const {
  const Position after{position_.iteration + 1, position_.epoch, position_.step + 1};
  return DeferredUpdates::completes_after(after.iteration) || checkpoints_.due(after) ||
         after.step == iterations_of(after.epoch);
}

/// Those whose turn it is, or all; returns the verdict on the last one, but a request to stop of
/// any. Before a stop or a checkpoint all rows up to that state are recorded.
Verdict Trainer::finish_iterations(bool all) {
  Verdict verdict;
  while (pipeline_.full() || (all && !pipeline_.empty())) {
    const Verdict one = finish(pipeline_.finish_first());
    if (verdict.stop == StopReason::kNone) verdict = one;
    all = all || verdict.stop != StopReason::kNone;
  }
  return verdict;
}

Verdict Trainer::finish(FinishedIteration finished) {
  IterationRow& row = finished.row;
  const StepResult& result = finished.result;
  const double begin_s = result.measured.begin_s + setting_.clock_offset_s - setting_.start_s;
  const Verdict verdict = gather_rows(exchange_, result, begin_s, row);
  if (parts_.deferred) buckets_ = result.buckets;
  if (setting_.recorder) {
    const WatchdogTimeoutExtension writes(exchange_.session().watchdog(), WatchedPhase::kJournal);
    setting_.recorder->add(row);
  }
  stop_on_bad_numbers(verdict, row.iteration);
  recent_iteration_s_.add(result.measured[Phase::kIteration]);
  summary_.add(result.measured, result.samples, row.warmup);
  epoch_summary_.add(result.measured, result.samples, row.warmup);
  epoch_clock_.training_s += training_s(result.measured);
  if (exchange_.session().rank() == 0) report_iteration(row);
  return verdict;
}

void Trainer::stop_on_bad_numbers(const Verdict& verdict, std::int64_t iteration) const {
  if (verdict.bad_rank < 0) return;
  const WatchdogTimeoutExtension writes(exchange_.session().watchdog(), WatchedPhase::kJournal);
  if (setting_.recorder) setting_.recorder->sync();
  if (exchange_.session().rank() != 0) exchange_.session().wait_for_abort();
  const auto& host = setting_.places[static_cast<std::size_t>(verdict.bad_rank)].host;
  const std::string what = verdict.bad_tensor < 0
                               ? std::string("the loss")
                               : "the gradient of " + parameter_name(verdict.bad_tensor);
  throw Error(
      ExitCode::kNumbers,
      fmt::format("{} is not finite on rank {} ({}) in iteration {}", what, verdict.bad_rank, host,
                  iteration),
      "a lower --lr; the iterations up to here are in the journal, gradsync-report reads it");
}

std::string Trainer::parameter_name(std::int64_t index) const {
  const auto& names = replica_.names;
  if (index < static_cast<std::int64_t>(names.size()))
    return names[static_cast<std::size_t>(index)];
  return "a parameter";
}

void Trainer::report_iteration(const IterationRow& row) {
  double slowest_s = 0;
  for (const RankIteration& rank : row.ranks)
    slowest_s = std::max(slowest_s, rank[Phase::kIteration]);
  progress_.update(row.epoch, row.iteration + 1, mean_loss(row),
                   static_cast<double>(row.samples) / slowest_s);
}

void Trainer::adapt_timeout() {
  if (options_.timeout_s > 0 || recent_iteration_s_.count() < kFirstIterations) return;
  exchange_.session().watchdog().set_timeout(
      std::max(kShortestTimeout_s, kLimitInWork * recent_iteration_s_.value()));
}

double Trainer::learning_rate() const {
  const double done = static_cast<double>(position_.step) /
                      static_cast<double>(feed_.iterations_of(position_.epoch));
  return rate_.at(static_cast<double>(position_.epoch) + done);
}

}  // namespace gradsync
