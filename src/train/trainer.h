#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "record/recorder.h"
#include "train/evaluate.h"
#include "train/fault.h"
#include "train/gather_rows.h"
#include "train/progress.h"
#include "train/summary.h"

namespace gradsync {

/// What a run needs beside its settings.
struct RunSetting {
  const TrainOptions& options;
  const Cifar10& data;
  const ComputeSettings& compute;
  const std::vector<RankPlace>& places;  ///< of all ranks, on rank 0
  double clock_offset_s = 0;             ///< add to this rank's clock to read rank 0's
  double start_s = 0;                    ///< start of the run on rank 0's clock
  Recorder* recorder = nullptr;          ///< on rank 0, if the run is recorded
};

/// Trains: epochs of iterations, each measured on every rank and recorded by rank 0.
class Trainer {
 public:
  Trainer(Exchange& exchange, const RunSetting& setting);

  /// Trains to the end. Throws Error kNumbers when a gradient or loss is not finite, kInputOutput
  /// when a row cannot be recorded. Collective.
  void run();

  /// The collectives of the last iteration, the same on all ranks.
  const std::vector<BucketShape>& buckets() const { return buckets_; }
  /// Runs the windows of --counterfactual after `run`, records and prints them. The trained replica
  /// stays as it is. Collective.
  void run_counterfactual();

 private:
  void run_epoch(std::int64_t epoch);
  void run_iteration(std::int64_t epoch, std::int64_t step);
  void inject_fault(std::int64_t iteration);
  void stop_on_bad_numbers(const Verdict& verdict) const;
  void report_iteration(const IterationRow& row);
  void adapt_timeout();
  Evaluation evaluate_epoch();
  void record_epoch(std::int64_t epoch, const RankEpoch& mine);
  std::int64_t iterations_in_all() const;
  std::int64_t iterations_of(std::int64_t epoch) const;

  Exchange& exchange_;
  RunSetting setting_;
  const TrainOptions& options_;
  Replica replica_;
  GradientGuard guard_;
  std::unique_ptr<SyncMode> mode_;
  Sgd optimizer_;
  Feed feed_;
  StepParts parts_;
  Fault fault_;
  RankSummary summary_, epoch_summary_;
  double epoch_training_s_ = 0;
  std::int64_t iteration_ = 0;
  std::vector<BucketShape> buckets_;
  Progress progress_;
};

}  // namespace gradsync
