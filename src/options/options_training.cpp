#include <limits>

#include <fmt/format.h>

#include "options/option_groups.h"

namespace gradsync {

namespace {

using Value = BoundValue<TrainOptions>;

TrainOption batch(const std::string& name, std::int64_t TrainOptions::*images, std::int64_t most,
                  const std::string& help) {
  return open_or(OptionRole::kStep, name, images, Value::integer(images, 1, most), help);
}

}  // namespace

TrainOptionTable training_options() {
  using enum OptionRole;
  using O = TrainOptions;
  constexpr std::int64_t kMaxSeed = std::numeric_limits<std::int64_t>::max();
  return {
      batch("batch-per-rank", &O::batch_per_rank, kMaxBatchPerRank,
            fmt::format("images per rank and pass; auto: {}, or what --batch-global gives",
                        kDefaultBatchPerRank)),
      batch("batch-global", &O::batch_global, kMaxIterations,
            "images per iteration on all ranks, ranks × batch-per-rank × accumulate; give this or "
            "--batch-per-rank"),
      {kStep, "accumulate", Value::integer(&O::accumulate, 1, kMaxCount),
       "backward passes per iteration, at most those of an epoch; with --last-batch pad the last "
       "iteration of an epoch takes those that are left"},
      {kCourse, "epochs", Value::integer(&O::epochs, 1, kMaxCount), "passes over the images"},
      {kCourse, "iterations", Value::integer(&O::iterations, 0, kMaxIterations, "no limit"),
       "end after N iterations"},
      {kFree, "warmup", Value::integer(&O::warmup, 0, kMaxCount),
       "first iterations that are flagged as warm-up"},
      {kFree, "seed", Value::integer<std::uint64_t>(&O::seed, 0, kMaxSeed),
       "seed of weights, order, augmentation and dropout"},
  };
}

void require_one_batch(const OptionValues& values, const TrainOptions& options) {
  if (options.batch_per_rank > 0 && options.batch_global > 0)
    throw option_error(
        values, "batch-global",
        fmt::format("{} together with batch-per-rank = {} ({})", options.batch_global,
                    options.batch_per_rank, values.at("batch-per-rank").where),
        "give one of the two; `auto` resets the value of a file or variable");
}

}  // namespace gradsync
