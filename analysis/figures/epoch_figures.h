// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/figures/run_group.h"
#include "analysis/read/run_set.h"

namespace gradsync::report {

/// One recorded epoch of a run. Times are of its slowest rank; loss and accuracy are means over the
/// ranks, memory is the largest. NaN: the run does not hold it.
struct EpochFigures {
  std::int64_t epoch = 0;  ///< from 0
  std::int64_t iterations = 0;
  std::int64_t whole_iterations = 0;  ///< that it has where nothing ends it early; 0: unknown
  bool whole = true;                  ///< false: it was ended before its end
  double samples = kNotMeasured;      ///< of the global batches of its iterations
  double training_s = kNotMeasured;   ///< its iterations without waiting for data
  double running_s = kNotMeasured;    ///< wall time, evaluation left out
  /// Only of an epoch that is not whole: the mean iteration that is not warm-up, times the
  /// iterations of a whole epoch.
  double extrapolated_s = kNotMeasured;
  double train_loss = kNotMeasured, train_accuracy = kNotMeasured;  ///< accuracies from 0 to 1
  double test_loss = kNotMeasured, test_accuracy = kNotMeasured;
  double peak_memory_bytes = kNotMeasured;

  double images_per_s() const { return samples / running_s; }
};

/// The epochs whose end was recorded, in order.
std::vector<EpochFigures> epoch_figures(const Run& run);

/// Seconds of an epoch that the run did not finish, by the mean iteration that is not warm-up
/// (slowest rank each) of the last epoch whose end was recorded; `training`: without waiting for
/// data. The first: what it has run, and that mean for each iteration that it lacks. A later one:
/// that mean times the iterations of a whole epoch. NaN where the run finished the first, or any
/// later one, and where it holds too little.
double unfinished_first_epoch_s(const Run& run, bool training);
double unfinished_later_epoch_s(const Run& run, bool training);

/// Images of the training set: what the run recorded, else 50,000 where it read CIFAR-10's files
/// without a manifest; 0 if unknown.
std::int64_t training_images(const Run& run);

/// Iterations of a whole epoch: as recorded, else by the rule of runs that did not record it from
/// the number of images, else the most that an epoch of the run has where one is known to be whole;
/// 0 if unknown, or if epochs differ (--batch-schedule).
std::int64_t iterations_of_whole_epoch(const Run& run);

/// Iterations of one whole epoch, from 0; with --batch-schedule by the batch of that epoch.
std::int64_t iterations_of_whole_epoch(const Run& run, std::int64_t epoch);

/// The iterations of an epoch of `images` images by the rule of runs that did not record it: images
/// per rank rounded up (`pad`) or down (drop), batches of them likewise, passes that do not fill an
/// iteration dropped.
std::int64_t iterations_by_rule(std::int64_t images, std::int64_t ranks,
                                std::int64_t batch_per_rank, std::int64_t accumulate, bool pad);

/// The global batch holds the whole training set: each epoch is one step over all images, and any
/// larger batch is the same run again.
bool is_full_batch(std::int64_t batch_global, std::int64_t images);

/// What the repeats of a group had learnt at the end of one epoch: a value a repeat, mean over its
/// ranks. Accuracies in percent.
struct AccuracyAt {
  std::int64_t epoch = 0;  ///< from 1; 0: no repeat has it
  std::vector<double> train_loss, train_percent, test_loss, test_percent;
  bool whole = true;  ///< false: --iterations ended it before its end
};

/// `epoch` from 1. Repeats that did not reach it are left out.
AccuracyAt accuracy_at(const RunGroup& group, std::int64_t epoch);

/// The last epoch that all repeats of the group that finished one have, from 1; 0 if
/// none did.
std::int64_t last_common_epoch(const RunGroup& group);

/// What a run does against the loss of accuracy at large batch, from its options: "lr 0.4 (0.1 at
/// batch 128), warmup-epochs 5"; "none" if it trains plainly. `reference` is the group whose
/// learning rate counts as plain.
std::string remedy_text(const RunGroup& group, const RunGroup& reference);

/// Whether remedy_text, the learning rate or the batch shows the option.
bool is_remedy_option(const std::string& name);

/// The group of the same model with the smallest global batch; of several the first that trains
/// plainly, else the first.
const RunGroup& smallest_batch(const std::vector<RunGroup>& groups, const RunGroup& group);

/// The group of the same model, mode, ranks and global batch that trains plainly, at the rate of
/// `reference`; null if there is none.
const RunGroup* plain_group(const std::vector<RunGroup>& groups, const RunGroup& group,
                            const RunGroup& reference);

/// Images of a step: of a batch schedule the largest of its batches.
std::int64_t largest_batch(const Run& run);

}  // namespace gradsync::report
