// SPDX-License-Identifier: BSD-3-Clause
#include "options/epoch_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "base/error.h"
#include "base/parse.h"
#include "data/sampler.h"
#include "options/modes.h"

namespace gradsync {

namespace {

std::string epoch_text(const TrainOptions& options, std::int64_t epoch) {
  return options.batch_schedule.empty() ? "an epoch"
                                        : fmt::format("epoch {} of --batch-schedule", epoch);
}

[[noreturn]] void refuse(const TrainOptions& options, std::int64_t epoch, std::int64_t batch,
                         std::int64_t passes) {
  throw Error(ExitCode::kUsage,
              fmt::format("--accumulate {} takes {} batches of {} images on each rank for one "
                          "iteration, and {} has {}",
                          options.accumulate, options.accumulate, batch, epoch_text(options, epoch),
                          passes),
              passes > 0 ? fmt::format("--accumulate {} or less, or a smaller batch", passes)
                         : "a smaller batch, or --last-batch pad");
}

}  // namespace

std::int64_t EpochPlan::iterations() const {
  return passes / accumulate + (pads && passes % accumulate != 0 ? 1 : 0);
}

std::int64_t EpochPlan::passes_of(std::int64_t step) const {
  return std::min(accumulate, passes - step * accumulate);
}

std::int64_t EpochPlan::passes_from(std::int64_t first) const {
  return std::max<std::int64_t>(0,
                                std::min(passes, iterations() * accumulate) - first * accumulate);
}

std::int64_t batch_per_rank_in(const TrainOptions& options, std::int64_t epoch,
                               std::int64_t ranks) {
  if (options.batch_schedule.empty()) return options.batch_per_rank;
  return options.batch_schedule.at(epoch) / (ranks * options.accumulate);
}

EpochPlan epoch_plan(const TrainOptions& options, std::int64_t images, std::int64_t ranks,
                     std::int64_t epoch) {
  const bool pads = options.last_batch != LastBatch::kDrop;
  const std::int64_t batch = batch_per_rank_in(options, epoch, ranks);
  return {steps_of_epoch(images, ranks, batch, pads ? LastBatch::kPad : LastBatch::kDrop),
          options.accumulate, pads};
}

std::vector<std::int64_t> epoch_lengths(const TrainOptions& options, std::int64_t images,
                                        std::int64_t ranks) {
  std::vector<std::int64_t> lengths;
  std::int64_t left =
      options.iterations > 0 ? options.iterations : std::numeric_limits<std::int64_t>::max();
  for (std::int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    lengths.push_back(std::min(left, epoch_plan(options, images, ranks, epoch).iterations()));
    left -= lengths.back();
  }
  return lengths;
}

std::string iterations_beyond_epochs(const TrainOptions& options, std::int64_t images,
                                     std::int64_t ranks) {
  const auto lengths = epoch_lengths(options, images, ranks);
  const auto all = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  if (options.iterations <= all) return {};
  return fmt::format("--iterations {} is more than the {} of {}", options.iterations, all,
                     count_text(options.epochs, "epoch"));
}

std::set<std::int64_t> pass_sizes(const TrainOptions& options, std::int64_t images,
                                  std::int64_t ranks) {
  std::set<std::int64_t> sizes;
  const auto lengths = epoch_lengths(options, images, ranks);
  for (std::size_t epoch = 0; epoch < lengths.size() && lengths[epoch] > 0; ++epoch) {
    const auto number = static_cast<std::int64_t>(epoch);
    const EpochPlan plan = epoch_plan(options, images, ranks, number);
    const std::int64_t batch = batch_per_rank_in(options, number, ranks);
    const std::int64_t last =
        plan.pads ? (images + ranks - 1) / ranks - (plan.passes - 1) * batch : batch;
    const bool is_reached = lengths[epoch] == plan.iterations();
    if (plan.passes > 1 || !is_reached) sizes.insert(batch);
    if (is_reached) sizes.insert(last);
  }
  return sizes;
}

void require_iterations(const TrainOptions& options, std::int64_t images, std::int64_t ranks) {
  const std::int64_t epochs = options.batch_schedule.empty() ? 1 : options.epochs;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    const EpochPlan plan = epoch_plan(options, images, ranks, epoch);
    if (plan.passes < options.accumulate)
      refuse(options, epoch, batch_per_rank_in(options, epoch, ranks), plan.passes);
  }
}

bool WarmupRule::counts(std::int64_t iteration, const std::vector<std::int64_t>& passes) {
  const std::size_t known = sizes_.size();
  sizes_.insert(passes.begin(), passes.end());
  const auto samples = std::accumulate(passes.begin(), passes.end(), std::int64_t{0});
  if (samples > whole_) {
    whole_ = samples;
    launched_ = 0;
  }
  const bool captures = options_.graph && samples == whole_ && launched_++ <= kStepsBeforeCapture;
  const bool once = options_.device == "cuda" && (captures || sizes_.size() > known);
  return once || iteration < options_.warmup;
}

std::string graph_obstacle(const TrainOptions& options) {
  if (options.device != "cuda") return "--device cpu: graphs are of GPUs";
  if (options.transport != "nccl")
    return "--transport " + options.transport + ": the host moves the data";
  if (!network_input(options).cifar10)
    return "--model " + options.model + ": the host draws the batches";
  if (options.feed == FeedFrom::kLoader) return "--feed loader: the host makes the batches";
  if (!mode_named(options.sync).capturable)
    return "--sync " + options.sync + ": the host takes part in each step";
  if (options.verify == "all") return "--verify all: the host compares each call";
  if (!options.batch_schedule.empty()) return "--batch-schedule: batches change their size";
  if (options.inject_fault.kind != FaultKind::kNone)
    return "--inject-fault: a replayed step does not ask for it";
  return {};
}

}  // namespace gradsync
