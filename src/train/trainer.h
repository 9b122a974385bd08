#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/cli/program_output.h"
#include "data/sampler.h"
#include "options/epoch_plan.h"
#include "options/options.h"
#include "stats/statistics.h"
#include "train/checkpoints.h"
#include "train/pipeline.h"
#include "train/rank_measurements.h"
#include "train/run_setting.h"
#include "train/run_summary.h"

namespace gradsync {

/// Trains: epochs of iterations, each measured on every rank and recorded by rank 0.
class Trainer {
 public:
  /// Begins at the start, or where the run resumes. Collective.
  Trainer(Exchange& exchange, const RunSetting& setting);

  /// Trains to the end and prints the closing table. Throws Error kNumbers when a gradient or loss
  /// is not finite, kInputOutput when a row or checkpoint cannot be written, kStoppedEarly when the
  /// run was stopped. Collective.
  void run(ProgramOutput& output);

  /// The collectives of the last iteration, the same on all ranks.
  const std::vector<BucketShape>& buckets() const { return buckets_; }
  /// Runs the windows of --counterfactual after `run`, records and prints them. The trained replica
  /// stays as it is. Collective.
  void run_counterfactual(ProgramOutput& output);

 private:
  void run_epoch();
  void use_graph();
  void warn_if_capture_failed();
  void run_iteration();
  bool completes_next() const;
  Verdict finish_iterations(bool all);
  Verdict finish(FinishedIteration finished);
  void stop_on_bad_numbers(const Verdict& verdict, std::int64_t iteration) const;
  std::string parameter_name(std::int64_t index) const;
  void report_iteration(const IterationRow& row);
  bool warms_up();
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
  std::optional<StepGraph> graph_;
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
  RankTraffic traffic_at_start_;  ///< of this rank, when the first iteration begins
  std::int64_t first_iteration_ = 0;
};

}  // namespace gradsync
