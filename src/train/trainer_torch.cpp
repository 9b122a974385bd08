// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <new>
#include <numeric>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/memory.h"
#include "base/parse.h"
#include "options/option_roles.h"
#include "options/options.h"
#include "train/compute_settings.h"
#include "train/rank_state.h"
#include "train/trainer.h"

namespace gradsync {

namespace {

/// Lower bound of an automatic timeout.
constexpr double kShortestTimeout_s = 60;
/// Iterations after which a process knows its median.
constexpr std::int64_t kFirstIterations = 3;

double mean_loss(const IterationRow& row) {
  double sum = 0;
  for (const RankIteration& rank : row.ranks)
    sum += rank.loss;
  return sum / static_cast<double>(row.ranks.size());
}

/// The reader of a host's counters, on one rank of each host.
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
    case FaultKind::kSlow:        // in every Pass
    case FaultKind::kSlowLoader:  // in Loader
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
      exchange.session().leave(0);
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
      training_(exchange,
                first_replica(exchange, options_, setting.compute.layout, setting.compute.device),
                setting.data, setting.compute, options_),
      rate_(options_.learning_rate),
      warmup_(options_),
      epoch_lengths_(
          epoch_lengths(options_, setting.data.size(Split::kTrain), exchange.session().size())),
      pipeline_(exchange, training_.replica, setting.clock_offset_s),
      fault_(setting.trial ? Fault() : options_.inject_fault),
      host_samples_(read_host(exchange.session()), kHostInterval_s),
      progress_(exchange.session().rank() == 0 && !setting.quiet, options_.log_every, iterations()),
      checkpoints_(exchange, setting_,
                   {training_.replica, *training_.optimizer, *training_.mode, summary_,
                    epoch_summary_, epoch_clock_, buckets_}) {
  if (setting.compute.device.is_cuda()) gpu_samples_.emplace(read_gpu(), kGpuInterval_s);
  if (options_.graph) use_graph();
  position_ = checkpoints_.restore();
  exchange_.log().start_at(position_.iteration);
  progress_.begin_at(position_.iteration);
  count_batches_before();
  first_iteration_ = position_.iteration;
  over_ = has_ended();
}

std::optional<BlockTime> Trainer::advance(std::int64_t iterations, std::int64_t round) {
  const WatchdogTimeoutExtension trains(exchange_.session().watchdog(), WatchedPhase::kTraining);
  enter();
  round_ = round;
  block_.assign(
      static_cast<std::size_t>(exchange_.session().root() ? exchange_.session().size() : 0), {});
  block_counted_ = 0;
  first_of_block_ = position_.iteration;
  last_of_block_ = iterations > kMaxIterations - position_.iteration
                       ? kMaxIterations
                       : position_.iteration + iterations;
  while (!over_ && position_.iteration < last_of_block_) {
    if (!epoch_begun_) begin_epoch();
    // A run may have been stopped before the evaluation of an epoch.
    if (position_.step < iterations_of(position_.epoch)) run_iteration();
    if (position_.step == iterations_of(position_.epoch)) end_epoch();
  }
  const Verdict last = finish_iterations(/*all=*/true);
  if (last.stop != StopReason::kNone) end_iteration(last);
  leave();
  const std::int64_t count = position_.iteration - first_of_block_ - options_.block_warmup;
  if (block_.empty() || count <= 0 || block_counted_ != count) return std::nullopt;
  return last_to_come(block_, static_cast<std::size_t>(count));
}

bool Trainer::evaluates_within(std::int64_t iterations) const {
  return options_.evaluate != EvaluateHow::kNone && !over_ &&
         position_.step + iterations >= iterations_of(position_.epoch);
}

void Trainer::end_here() {
  if (over_) return;
  enter();
  // An epoch that is cut short is as long as it got.
  const auto epoch = static_cast<std::size_t>(position_.epoch);
  epoch_lengths_[epoch] = position_.step;
  std::fill(epoch_lengths_.begin() + static_cast<std::ptrdiff_t>(epoch) + 1, epoch_lengths_.end(),
            0);
  if (position_.step > 0) {
    if (!epoch_begun_) begin_epoch();  // a resumed run may not have come to it
    end_epoch();
  }
  // What resumes from here trains no more.
  position_ = {position_.iteration, options_.epochs, 0};
  over_ = true;
  leave();
}

void Trainer::begins_after(const RankTraffic& moved) {
  if (!std::exchange(entered_, true)) moved_.add(traffic_at_start_ = moved);
}

/// Takes the session's control values and the clocks to itself.
void Trainer::enter() {
  if (training_.deferred) computes_.emplace();
  exchange_.log().take_control_values();
  traffic_at_entry_ = exchange_.session().ledger().total();
  begins_after(traffic_at_entry_);
  if (epoch_begun_) {
    epoch_clock_.since.restart_s();
    pipeline_.anchor();
  }
  checkpoints_.go_on();
  adapt_timeout();  // or the limit would be that of the contender before
}

void Trainer::leave() {
  computes_.reset();
  moved_.add(exchange_.session().ledger().total(), traffic_at_entry_);
  if (epoch_begun_) epoch_clock_.before_s = epoch_clock_.running_s();
}

/// Whether all epochs are trained, or the accuracy is reached. Collective.
bool Trainer::has_ended() {
  return position_.epoch >= options_.epochs || iterations_of(position_.epoch) == 0 ||
         target_reached();
}

void Trainer::close() {
  const WatchdogTimeoutExtension trains(exchange_.session().watchdog(), WatchedPhase::kTraining);
  enter();
  computes_.reset();
  progress_.clear();
  checkpoints_.end_training();
  close_training();
  checkpoints_.after_training(position_);
}

std::string Trainer::line_begin() const {
  return setting_.contender.empty() ? "" : setting_.contender + ": ";
}

void Trainer::print_summary(ProgramOutput& output) {
  Table table = summary_.gather(exchange_, setting_.places, options_.warmup);
  const std::string beyond = iterations_beyond_epochs(options_, setting_.data.size(Split::kTrain),
                                                      exchange_.session().size());
  if (!beyond.empty()) table.title += "; " + beyond;
  if (exchange_.session().rank() != 0) return;
  output.add(table);
  print_narrow_text(std::cout, closing_table(table), output_columns(), "--json FILE");
  std::cout << std::flush;  // what is measured after the training takes a while
}

void Trainer::use_graph() {
  const std::string obstacle = graph_obstacle(options_);
  if (obstacle.empty())
    training_.graph = (graph_ = setting_.make_graph()).get();
  else if (exchange_.session().rank() == 0)
    print_warning("gradsync-train", fmt::format("--graph has no effect, because of {}", obstacle));
}

void Trainer::warn_if_capture_failed() {
  if (!training_.graph || graph_->why_not().empty()) return;
  training_.graph = nullptr;
  if (exchange_.session().rank() == 0)
    print_warning(
        "gradsync-train",
        fmt::format("--graph: iterations are launched kernel by kernel, because one could "
                    "not be captured: {}",
                    graph_->why_not()));
}

void Trainer::run_iteration() {
  const bool first = position_.iteration - first_iteration_ < kFirstIterations;
  const WatchdogTimeoutExtension phase(
      exchange_.session().watchdog(),
      first ? WatchedPhase::kFirstIterations : WatchedPhase::kTraining);
  if (fault_.due(exchange_.session().rank(), position_.iteration))
    inject_fault(fault_.kind, exchange_, training_.guard, position_.iteration);
  const bool warmup = warms_up();
  reset_peak_after_warmup(warmup);
  training_.completes = completes_next();
  StartedIteration started = launch_iteration(warmup);
  FinishedIteration& known = started.known;
  known.row.epoch = position_.epoch;
  known.row.warmup = warmup;
  known.row.round = round_;
  const bool last_of_epoch = position_.step + 1 == iterations_of(position_.epoch);
  known.stop = checkpoints_.wanted(last_of_epoch && options_.evaluate != EvaluateHow::kNone,
                                   iterations_to_next_stop());
  // A replayed step says nothing of its collectives, and a step of local-sgd may have none.
  if (!training_.deferred && !known.row.buckets.empty()) buckets_ = known.row.buckets;
  warn_if_capture_failed();
  pipeline_.push(std::move(started));
  ++position_.iteration;
  ++position_.step;
  if (training_.defers()) return;
  const Verdict verdict = finish_iterations(training_.deferred || checkpoints_.due(position_));
  adapt_timeout();
  end_iteration(verdict);
}

/// A run that stops keeps the samples since the last epoch.
void Trainer::end_iteration(const Verdict& verdict) {
  if (verdict.stop != StopReason::kNone) record_samples();
  checkpoints_.after_iteration(position_, verdict);
}

void Trainer::suspend() {
  record_samples();
  epoch_clock_.since.restart_s();  // leave() has counted what it trained
  checkpoints_.suspend(position_);
}

/// In a warm-up iteration a launch may take long by itself: cuDNN tries its algorithms.
StartedIteration Trainer::launch_iteration(bool warmup) {
  const bool may_block = exchange_.enqueues() && !warmup;
  const LaunchScope launches(may_block ? &exchange_.session().watchdog() : nullptr,
                             setting_.data.files == nullptr || setting_.data.resident);
  return start_iteration(training_, position_.iteration, position_.step, learning_rate());
}

bool Trainer::warms_up() {
  std::vector<std::int64_t> passes;
  const std::int64_t first = training_.feed.first_pass_of(position_.step);
  for (std::int64_t pass = 0; pass < training_.feed.passes_of(position_.step); ++pass)
    passes.push_back(training_.feed.samples_per_rank(first + pass));
  const bool begins =
      round_ != kNoRound && position_.iteration - first_of_block_ < options_.block_warmup;
  return warmup_.counts(position_.iteration, passes) || begins;
}

/// cuDNN's search takes memory that no later step does.
void Trainer::reset_peak_after_warmup(bool warmup) {
  if (!warmup && std::exchange(peak_holds_warmup_, false))
    reset_peak_device_bytes(setting_.compute.device);
  if (setting_.compute.device.is_cuda()) peak_holds_warmup_ |= warmup;
}

/// Whether deferred updates are waited for in the next iteration; the same on all ranks.
bool Trainer::completes_next() const {
  return completes_at({position_.iteration + 1, position_.epoch, position_.step + 1});
}

bool Trainer::completes_at(const Position& after) const {
  return DeferredUpdates::completes_after(after.iteration) || checkpoints_.due(after) ||
         after.step == iterations_of(after.epoch) || after.iteration == last_of_block_;
}

/// How many iterations follow this one until the run can stop again: with deferred updates it
/// cannot before they have been waited for.
std::int64_t Trainer::iterations_to_next_stop() const {
  if (!training_.deferred || !training_.completes) return 1;
  Position next{position_.iteration + 1, position_.epoch, position_.step + 1};
  if (next.step == iterations_of(next.epoch)) next = {next.iteration, next.epoch + 1, 0};
  if (next.epoch >= options_.epochs || iterations_of(next.epoch) == 0) return 1;
  std::int64_t count = 0;
  do {
    ++next.iteration, ++next.step, ++count;
  } while (!completes_at(next));
  return count;
}

/// Finishes the iterations that are due, or all of them. Returns the last verdict, or the first
/// that requests a stop: before a stop or a checkpoint all rows up to that state are recorded.
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
  const double begin_s = finished.measured.begin_s + setting_.clock_offset_s - setting_.start_s;
  const Verdict verdict =
      gather_rows(exchange_, finished, begin_s, [&](const IterationRow& complete) {
        if (!setting_.recorder) return;
        const WatchdogTimeoutExtension writes(exchange_.session().watchdog(),
                                              WatchedPhase::kJournal);
        setting_.recorder->add(complete);
      });
  const IterationRow& row = finished.row;
  if (training_.deferred) buckets_ = row.buckets;
  stop_on_bad_numbers(verdict, row.iteration);
  recent_iteration_s_.add(finished.measured[Phase::kIteration]);
  summary_.add(finished.measured, finished.samples, row.warmup);
  epoch_summary_.add(finished.measured, finished.samples, row.warmup);
  epoch_clock_.training_s += training_s(finished.measured);
  if (!row.warmup) ++block_counted_;
  for (std::size_t rank = 0; !row.warmup && rank < block_.size(); ++rank) {
    const RankIteration& one = row.ranks[rank];
    const double worth =
        options_.batch_schedule.empty()
            ? worth_of_iteration(setting_.worth, row.samples, options_.batch_global)
            : setting_.worth;
    block_[rank].add(one[Phase::kIteration] / worth, one[Phase::kCompute] / worth,
                     one[Phase::kExposed] / worth, one[Phase::kWait] / worth);
  }
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
  throw Error(ExitCode::kNumbers,
              fmt::format("{}{} is not finite on rank {} ({}) in iteration {}", line_begin(), what,
                          verdict.bad_rank, host, iteration),
              setting_.recorder ? "a lower --lr; the iterations up to here are in the journal, "
                                  "gradsync-report reads it"
                                : "a lower --lr");
}

std::string Trainer::parameter_name(std::int64_t index) const {
  const auto& names = training_.replica.names;
  if (index < static_cast<std::int64_t>(names.size()))
    return names[static_cast<std::size_t>(index)];
  return "a parameter";
}

void Trainer::report_iteration(const IterationRow& row) {
  double slowest_s = 0;
  for (const RankIteration& rank : row.ranks)
    slowest_s = std::max(slowest_s, rank[Phase::kIteration]);
  progress_.update(row.epoch, row.iteration + 1, mean_loss(row),
                   static_cast<double>(row.samples) / slowest_s, row.warmup);
}

void Trainer::adapt_timeout() {
  if (options_.timeout_s > 0 || recent_iteration_s_.count() < kFirstIterations) return;
  exchange_.session().watchdog().set_timeout(
      std::max(kShortestTimeout_s, kLimitInWork * recent_iteration_s_.value()));
}

double Trainer::learning_rate() const {
  const double done = static_cast<double>(position_.step) /
                      static_cast<double>(training_.feed.iterations_of(position_.epoch));
  return rate_.at(static_cast<double>(position_.epoch) + done);
}

namespace {

/// "54.20 %", or "n/a" for what was not measured.
std::string percent(double part) {
  return std::isnan(part) ? "n/a" : fmt::format("{:.2f} %", 1e2 * part);
}

/// Line of an epoch, of all ranks: means, and the times of the slowest.
std::string epoch_line(std::int64_t epoch, const std::vector<RankEpoch>& ranks) {
  const auto mean = [&](double RankEpoch::*value) {
    double sum = 0;
    for (const RankEpoch& rank : ranks)
      sum += rank.*value;
    return sum / static_cast<double>(ranks.size());
  };
  const auto slowest = [&](double RankEpoch::*time_s) {
    double slowest_s = 0;
    for (const RankEpoch& rank : ranks)
      slowest_s = std::max(slowest_s, rank.*time_s);
    return slowest_s;
  };
  return fmt::format(
      "epoch {}: train loss {:.4f}, train accuracy {}, test accuracy {}, {:.4f} s training, "
      "{:.4f} s running",
      epoch + 1, mean(&RankEpoch::train_loss), percent(mean(&RankEpoch::train_accuracy)),
      percent(mean(&RankEpoch::test_accuracy)), slowest(&RankEpoch::training_time_s),
      slowest(&RankEpoch::running_time_s));
}

}  // namespace

void Trainer::begin_epoch() {
  epoch_clock_.since.restart_s();
  training_.feed.begin_epoch(position_.epoch, position_.step);
  pipeline_.anchor();
  epoch_begun_ = true;
}

void Trainer::end_epoch() {
  const Verdict last = finish_iterations(/*all=*/true);
  if (last.stop != StopReason::kNone) end_iteration(last);
  RankEpoch mine;
  mine.running_time_s = epoch_clock_.running_s();
  mine.training_time_s = epoch_clock_.training_s;
  mine.train_loss = epoch_summary_.mean_loss();
  mine.train_accuracy = epoch_summary_.accuracy();
  const Evaluation test = evaluate_epoch();
  mine.test_loss = test.loss;
  mine.test_accuracy = test.accuracy;
  mine.evaluation_time_s = test.time_s;
  if (setting_.compute.device.is_cuda())
    mine.peak_memory_bytes =
        static_cast<double>(std::max(peak_device_bytes(setting_.compute.device),
                                     training_.graph ? training_.peak_of_capture_bytes : 0));
  else if (const auto bytes = peak_resident_bytes())
    mine.peak_memory_bytes = static_cast<double>(*bytes);
  summary_.add_test(test.accuracy);
  record_epoch(mine);
  epoch_summary_ = RankSummary();
  epoch_clock_ = EpochClock();
  position_ = {position_.iteration, position_.epoch + 1, 0};
  epoch_begun_ = false;
  over_ = has_ended();
}

Evaluation Trainer::evaluate_epoch() {
  if (options_.evaluate == EvaluateHow::kNone) return {};
  progress_.clear();
  const WatchdogTimeoutExtension evaluates(exchange_.session().watchdog(),
                                           WatchedPhase::kEvaluation);
  const Evaluation result =
      evaluate(training_, setting_.data, evaluate_how(options_, exchange_.session().size()));
  checkpoints_.after_evaluation(result.time_s);
  return result;
}

/// Whether --target-accuracy is reached: by the mean over the ranks, since replicas that are
/// evaluated each may differ. Between epochs; the same on all ranks.
bool Trainer::target_reached() {
  if (!(options_.target_accuracy > 0)) return false;
  constexpr double kRounding = 1e-12;
  double accuracy = summary_.test_accuracy();
  exchange_.session().sum(std::span(&accuracy, 1));
  accuracy /= static_cast<double>(exchange_.session().size());
  if (!(1e2 * accuracy >= options_.target_accuracy - kRounding)) return false;
  progress_.clear();
  if (exchange_.session().rank() == 0)
    std::cout << fmt::format("target accuracy {:g} % reached: {} after epoch {}\n",
                             options_.target_accuracy, percent(accuracy), position_.epoch)
              << std::flush;
  return true;
}

std::function<GpuReading()> Trainer::read_gpu() const {
  std::string why;
  const std::shared_ptr<GpuMonitor> monitor = open_nvml(setting_.gpu_uuid, why);
  if (monitor) return [monitor] { return monitor->read(); };
  if (exchange_.session().rank() == 0)
    print_warning("gradsync-train", "no samples of memory, clocks and power: " + why);
  return {};
}

void Trainer::record_samples() {
  const WatchdogTimeoutExtension writes(exchange_.session().watchdog(), WatchedPhase::kJournal);
  if (gpu_samples_)
    gpu_samples_->record(exchange_, setting_.clock_offset_s, setting_.start_s, setting_.recorder);
  host_samples_.record(exchange_, setting_.clock_offset_s, setting_.start_s, setting_.recorder);
}

void Trainer::record_epoch(const RankEpoch& mine) {
  record_samples();
  const WatchdogTimeoutExtension writes(exchange_.session().watchdog(), WatchedPhase::kJournal);
  const std::int64_t epoch = position_.epoch;
  const std::vector<RankEpoch> all = exchange_.session().gather(mine);
  if (setting_.trial) return;
  if (exchange_.session().root()) {
    std::cout << line_begin() << epoch_line(epoch, all) << ", order "
              << training_.feed.order_digest() << std::endl;
    const EpochOrder order = count_batches(epoch);
    if (setting_.recorder)
      setting_.recorder->add(EpochRow{epoch, iterations_of(epoch), training_.feed.order_digest(),
                                      order.new_batches, order.shared_images, all});
  }
  // Else the others would wait for rank 0 in the first iteration of the next epoch.
  exchange_.session().meet();
}

EpochOrder Trainer::count_batches(std::int64_t epoch) {
  return census_.add(training_.feed.order_of(epoch), exchange_.session().size(),
                     options_.accumulate, iterations_of(epoch));
}

/// A resumed run counts the batches of its earlier epochs.
void Trainer::count_batches_before() {
  if (exchange_.session().rank() != 0) return;
  for (std::int64_t epoch = 0; epoch < position_.epoch; ++epoch)
    count_batches(epoch);
}

/// Prints and records what two runs are compared by, and what the ranks moved. Hashes are equal
/// only if bit-equal.
void Trainer::close_training() {
  const WatchdogTimeoutExtension writes(exchange_.session().watchdog(), WatchedPhase::kJournal);
  const RankTraffic trained = moved_.total();
  training_.mode->publish();
  const ReplicaRow replicas = compare_replicas(exchange_, training_.replica);
  training_.mode->withdraw();  // the checkpoint that follows is of the training
  record_traffic(trained);
  if (exchange_.session().rank() != 0) return;
  std::cout << line_begin() << "parameters: " << distinct_hashes(replicas) << std::endl;
  if (setting_.recorder) setting_.recorder->add(replicas);
  if (!training_.optimizer->scales_loss()) return;
  const StepState state = training_.optimizer->read_state();
  std::cout << line_begin()
            << fmt::format("fp16: {} skipped for an overflow, loss scale {:g}\n",
                           count_text(state.skipped_steps, "step"), state.loss_scale.scale)
            << std::flush;
}

void Trainer::record_traffic(const RankTraffic& trained) {
  const auto all = exchange_.session().gather(std::array{traffic_at_start_, trained});
  if (!setting_.recorder) return;
  TrafficRow start{"start", 0, {}}, end{"trained", position_.iteration - first_iteration_, {}};
  for (const auto& rank : all) {
    start.ranks.push_back(rank[0]);
    end.ranks.push_back(rank[1]);
  }
  setting_.recorder->add(start);
  setting_.recorder->add(end);
}

std::int64_t Trainer::iterations_of(std::int64_t epoch) const {
  return epoch_lengths_[static_cast<std::size_t>(epoch)];
}

}  // namespace gradsync
