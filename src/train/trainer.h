// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/cli/program_output.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_info.h"
#include "data/sampler.h"
#include "options/epoch_plan.h"
#include "options/options.h"
#include "record/row_figures.h"
#include "stats/clock.h"
#include "stats/statistics.h"
#include "train/pipeline.h"
#include "train/rank_measurements.h"
#include "train/rank_state.h"
#include "train/run_setting.h"
#include "train/run_summary.h"

namespace gradsync {

/// The times at which a run writes checkpoints, and its stop; between iterations, off the clock.
class Checkpoints {
 public:
  /// `exchange`, `setting` and what `state` names must outlive it.
  Checkpoints(Exchange& exchange, const RunSetting& setting, const RankState& state);

  /// Restores the state of all ranks; returns the position: the start, for a new run.
  /// Collective.
  Position restore();

  /// Why this rank stops now rather than after so many more iterations; `evaluates`: and after the
  /// evaluation that comes before them.
  StopReason wanted(bool evaluates, std::int64_t iterations) const;

  /// Call it after each evaluation, with the time it took.
  void after_evaluation(double time_s);

  /// Whether `after_iteration` will write a checkpoint at this position.
  bool due(const Position& position) const;

  /// Call it after each iteration. Writes a checkpoint when one is due. When a rank requests a
  /// stop, writes one, closes the run file as partial and ends the job with kStoppedEarly: on rank
  /// 0 as an Error, on the others without returning. Collective.
  void after_iteration(const Position& position, const Verdict& verdict);

  /// Call it when the last iteration and its epoch are recorded. A run that resumes from a later
  /// checkpoint records again what is recorded after this.
  void end_training();

  /// Call it when the training is over. Writes a checkpoint if one was asked for at its end.
  /// Collective.
  void after_training(const Position& position);

  /// Writes a checkpoint and closes the run file as partial. Collective.
  void suspend(const Position& position);
  double needed_to_suspend_s(bool evaluates) const;

  /// Call it when training resumes after other work of the job, which is no time of an iteration.
  void go_on() { since_iteration_.restart_s(); }

 private:
  void save(const Position& position);
  void stop(const Position& position, const Verdict& verdict);
  void meet();
  CheckpointInfo info_at(const Position& position) const;
  double needed_s(bool evaluates, std::int64_t iterations) const;
  std::filesystem::path target(const Position& position) const;
  std::string stop_message(const Position& position, const Verdict& verdict) const;
  bool root() const { return exchange_.session().rank() == 0; }
  bool recorded() const { return !setting_.options.output.empty(); }

  Exchange& exchange_;
  const RunSetting& setting_;
  RankState state_;
  std::optional<OwnCheckpoints> own_;           ///< on rank 0, of a run that is recorded
  std::optional<std::int64_t> training_bytes_;  ///< of the journal, when the training had ended
  Stopwatch since_iteration_;        ///< the end of the last one, and of what followed it
  std::int64_t last_iteration_ = 0;  ///< of the position that `after_iteration` had last
  StopForecast forecast_;
};

/// The line that resumes a job which was stopped.
std::string command_to_go_on(const std::string& command_line, int ranks);

/// Trains: epochs of iterations, each measured on every rank and recorded by rank 0.
class Trainer {
 public:
  /// Begins at the start, or where the run resumes. Collective.
  Trainer(Exchange& exchange, const RunSetting& setting);

  /// Sets what this rank had moved before training. Without this call it is what it has moved when
  /// `advance` is first called.
  void begins_after(const RankTraffic& moved);
  /// Trains on, at most so many iterations. All of them are finished and recorded when it returns,
  /// so that other trainers of the job may train until the next call. Returns on rank 0 what an
  /// iteration of the reference's size took (last_to_come), without the first --block-warmup ones;
  /// nothing where one of the others was warm-up. `round` is recorded in their rows. Throws Error
  /// kNumbers when a gradient or loss is not finite, kInputOutput when a row or checkpoint cannot
  /// be written, kStoppedEarly when the run was stopped. Collective.
  std::optional<BlockTime> advance(std::int64_t iterations, std::int64_t round = kNoRound);
  /// Ends the training here, as if no more iterations had been wanted. Collective.
  void end_here();
  /// Whether the training has ended.
  bool over() const { return over_; }
  /// Whether it was ended by `end_here` before it was resumed.
  bool was_ended() const {
    return position_.epoch >= options_.epochs && position_.iteration < iterations();
  }
  std::int64_t iterations_done() const { return position_.iteration; }
  /// Iterations of the whole run.
  std::int64_t iterations() const {
    return std::accumulate(epoch_lengths_.begin(), epoch_lengths_.end(), std::int64_t{0});
  }
  /// Writes a checkpoint and closes the run file as partial, for a job that is to be stopped. All
  /// that `advance` began has ended. Collective.
  void suspend();
  /// Seconds that suspending this run may take; `evaluates`: after an evaluation.
  double needed_to_suspend_s(bool evaluates) const {
    return checkpoints_.needed_to_suspend_s(evaluates);
  }
  /// Whether the evaluation of an epoch comes within so many iterations.
  bool evaluates_within(std::int64_t iterations) const;
  /// Records what is known when the training is over. Collective.
  void close();
  /// Prints the closing table. Collective.
  void print_summary(ProgramOutput& output);

  /// The collectives of the last iteration, the same on all ranks.
  const std::vector<BucketShape>& buckets() const { return buckets_; }

 private:
  void enter();
  void leave();
  std::string line_begin() const;
  void begin_epoch();
  void end_epoch();
  bool has_ended();
  void use_graph();
  void warn_if_capture_failed();
  void run_iteration();
  void end_iteration(const Verdict& verdict);
  bool completes_next() const;
  bool completes_at(const Position& after) const;
  std::int64_t iterations_to_next_stop() const;
  Verdict finish_iterations(bool all);
  Verdict finish(FinishedIteration finished);
  void stop_on_bad_numbers(const Verdict& verdict, std::int64_t iteration) const;
  std::string parameter_name(std::int64_t index) const;
  void report_iteration(const IterationRow& row);
  bool warms_up();
  StartedIteration launch_iteration(bool warmup);
  void reset_peak_after_warmup(bool warmup);
  void adapt_timeout();
  Evaluation evaluate_epoch();
  bool target_reached();
  std::function<GpuReading()> read_gpu() const;
  void record_samples();
  void record_epoch(const RankEpoch& mine);
  EpochOrder count_batches(std::int64_t epoch);
  void count_batches_before();
  void close_training();
  void record_traffic(const RankTraffic& trained);
  std::int64_t iterations_of(std::int64_t epoch) const;
  double learning_rate() const;

  Exchange& exchange_;
  RunSetting setting_;
  const TrainOptions& options_;
  RankTraining training_;
  LearningRate rate_;
  WarmupRule warmup_;
  bool peak_holds_warmup_ = false;           ///< of the device's memory
  std::vector<std::int64_t> epoch_lengths_;  ///< in iterations
  std::unique_ptr<StepGraph> graph_;
  Pipeline pipeline_;
  Fault fault_;
  RankSummary summary_, epoch_summary_;
  EpochClock epoch_clock_;
  RecentMedian recent_iteration_s_;
  std::vector<BucketShape> buckets_;
  std::optional<RankSamples<GpuReading>> gpu_samples_;  ///< on a GPU
  RankSamples<HostReading> host_samples_;               ///< of one rank a host
  ProgressLog progress_;
  Checkpoints checkpoints_;
  Position position_;
  BatchCensus census_;            ///< on rank 0
  RankTraffic traffic_at_start_;  ///< of this rank, when the job's first training began
  RankTraffic traffic_at_entry_;  ///< when `advance` was called
  Ledger moved_;                  ///< what this rank had moved then, and moves in `advance`
  std::int64_t first_iteration_ = 0;
  std::int64_t round_ = kNoRound, first_of_block_ = 0, last_of_block_ = 0;
  bool entered_ = false;
  std::optional<SchedBatchScope> computes_;  ///< while deferred messages overlap what it computes
  std::vector<BlockTime> block_;             ///< sums by rank, on rank 0
  std::int64_t block_counted_ = 0;           ///< iterations in them
  bool epoch_begun_ = false, over_ = false;
};

}  // namespace gradsync
