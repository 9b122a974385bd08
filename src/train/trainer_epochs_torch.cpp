// The epochs of a Trainer: their lengths, what is measured and recorded of each, and the end of
// training. Its iterations are in trainer.cpp.
#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>

#include <fmt/format.h>

#include "base/memory.h"
#include "train/rank_device.h"
#include "train/replica_facts.h"
#include "train/trainer.h"

namespace gradsync {

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

void Trainer::run_epoch() {
  epoch_clock_.since.restart_s();
  feed_.begin_epoch(position_.epoch, position_.step);
  pipeline_.anchor();
  while (position_.step < iterations_of(position_.epoch))
    run_iteration();
  const Verdict last = finish_iterations(/*all=*/true);
  if (last.stop != StopReason::kNone) checkpoints_.after_iteration(position_, last);
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
    mine.peak_memory_bytes = static_cast<double>(peak_device_bytes(setting_.compute.device));
  else if (const auto bytes = peak_resident_bytes())
    mine.peak_memory_bytes = static_cast<double>(*bytes);
  summary_.add_test(test.accuracy);
  record_epoch(mine);
  epoch_summary_ = RankSummary();
  epoch_clock_ = EpochClock();
  position_ = {position_.iteration, position_.epoch + 1, 0};
}

Evaluation Trainer::evaluate_epoch() {
  if (options_.evaluate == "none") return {};
  progress_.clear();
  const WatchdogTimeoutExtension evaluates(exchange_.session().watchdog(),
                                           WatchedPhase::kEvaluation);
  const Evaluation result =
      evaluate(parts_, setting_.data, options_.batch_per_rank, options_.loader_threads,
               evaluate_how(options_, exchange_.session().size()));
  checkpoints_.after_evaluation(result.time_s);
  return result;
}

/// Between epochs, the same on all ranks: replicas that are evaluated each may differ.
bool Trainer::target_reached() {
  if (!(options_.target_accuracy > 0)) return false;
  constexpr double kRounding = 1e-12;
  double accuracy = summary_.test_accuracy();
  exchange_.session().sum({&accuracy, 1});
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
  if (gpu_samples_)
    gpu_samples_->record(exchange_, setting_.clock_offset_s, setting_.start_s, setting_.recorder);
  host_samples_.record(exchange_, setting_.clock_offset_s, setting_.start_s, setting_.recorder);
}

void Trainer::record_epoch(const RankEpoch& mine) {
  const WatchdogTimeoutExtension writes(exchange_.session().watchdog(), WatchedPhase::kJournal);
  record_samples();
  const std::int64_t epoch = position_.epoch;
  std::vector<RankEpoch> all(
      exchange_.session().rank() == 0 ? static_cast<std::size_t>(exchange_.session().size()) : 0);
  exchange_.session().gather(std::as_bytes(std::span(&mine, 1)),
                             std::as_writable_bytes(std::span(all)));
  if (exchange_.session().rank() != 0) return;
  std::cout << epoch_line(epoch, all) << ", order " << feed_.order_digest() << std::endl;
  const EpochOrder order = count_batches(epoch);
  if (setting_.recorder)
    setting_.recorder->add(EpochRow{epoch, iterations_of(epoch), feed_.order_digest(),
                                    order.new_batches, order.shared_images, all});
}

EpochOrder Trainer::count_batches(std::int64_t epoch) {
  return census_.add(feed_.order_of(epoch), exchange_.session().size(), options_.accumulate,
                     iterations_of(epoch));
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
  const RankTraffic trained = exchange_.session().ledger().total();
  mode_->publish();
  const ReplicaRow replicas = compare_replicas(exchange_, replica_);
  record_traffic(trained);
  if (exchange_.session().rank() != 0) return;
  std::cout << "parameters: " << distinct_hashes(replicas) << std::endl;
  if (setting_.recorder) setting_.recorder->add(replicas);
  if (!optimizer_->scales_loss()) return;
  const StepState state = optimizer_->read_state();
  std::cout << fmt::format("fp16: {} steps skipped for an overflow, loss scale {:g}\n",
                           state.skipped_steps, state.loss_scale.scale)
            << std::flush;
}

void Trainer::record_traffic(const RankTraffic& trained) {
  const std::array<RankTraffic, 2> mine = {traffic_at_start_, trained};
  std::vector<std::array<RankTraffic, 2>> all(
      exchange_.session().rank() == 0 ? static_cast<std::size_t>(exchange_.session().size()) : 0);
  exchange_.session().gather(std::as_bytes(std::span(mine)),
                             std::as_writable_bytes(std::span(all)));
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
