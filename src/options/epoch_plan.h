// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "options/options.h"

namespace gradsync {

/// How the passes of an epoch become iterations of `--accumulate` passes each. Where images are
/// padded nothing is dropped: the last iteration takes the passes that are left. Where they are
/// dropped, so are passes that do not fill an iteration.
struct EpochPlan {
  std::int64_t passes = 0;  ///< batches of one rank in the epoch
  std::int64_t accumulate = 1;
  bool pads = true;

  std::int64_t iterations() const;
  /// Passes of the iteration `step`, which is below iterations().
  std::int64_t passes_of(std::int64_t step) const;
  /// Passes of the iterations from `first` on; 0 behind the last one.
  std::int64_t passes_from(std::int64_t first) const;
};

/// Images that a rank takes in one pass of `epoch`; after resolve_batch().
std::int64_t batch_per_rank_in(const TrainOptions& options, std::int64_t epoch, std::int64_t ranks);

EpochPlan epoch_plan(const TrainOptions& options, std::int64_t images, std::int64_t ranks,
                     std::int64_t epoch);

/// Iterations of each epoch of the run; after resolve_batch(). --iterations cuts them off.
std::vector<std::int64_t> epoch_lengths(const TrainOptions& options, std::int64_t images,
                                        std::int64_t ranks);

/// "--iterations 400 is more than the 10 of 1 epoch", or empty where the epochs have as many.
std::string iterations_beyond_epochs(const TrainOptions& options, std::int64_t images,
                                     std::int64_t ranks);

/// How many images the passes of a rank have in the run: the batch, those of --batch-schedule, and
/// what is left for the last pass of an epoch where images are padded.
std::set<std::int64_t> pass_sizes(const TrainOptions& options, std::int64_t images,
                                  std::int64_t ranks);

/// Throws Error kUsage if the images do not give every epoch at least one iteration of the whole
/// global batch or, where the last batch is padded, of as many passes.
void require_iterations(const TrainOptions& options, std::int64_t images, std::int64_t ranks);

/// With --graph: iterations that run kernel by kernel before one is captured. ddp builds its
/// buckets again after the first; cuDNN tries its algorithms and NCCL connects in them.
inline constexpr std::int64_t kStepsBeforeCapture = 4;

/// Which iterations are flagged as warm-up: the first ones of the run, as many as --warmup says. On
/// a GPU, those of this process too in which work is done once: the first of each size of a pass,
/// for which cuDNN searches its algorithms, and with --graph those of the whole batch up to the
/// capture.
class WarmupRule {
 public:
  explicit WarmupRule(const TrainOptions& options) : options_(options) {}

  /// Called once an iteration, in order; `passes`: the sizes of its passes.
  bool counts(std::int64_t iteration, const std::vector<std::int64_t>& passes);

 private:
  const TrainOptions& options_;
  std::int64_t whole_ = 0, launched_ = 0;  ///< the largest batch of this process, its iterations
  std::set<std::int64_t> sizes_;
};

/// Which option keeps the step from being captured as a CUDA graph, and why; empty if none does.
/// `options` are settled: device, transport and feed are what the run uses.
std::string graph_obstacle(const TrainOptions& options);

}  // namespace gradsync
