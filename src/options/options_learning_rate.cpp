#include <fmt/format.h>
#include <fmt/ranges.h>

#include "options/option_groups.h"
#include "support/parse.h"

namespace gradsync {

namespace {

constexpr std::int64_t kMaxBatch = 1'000'000'000;
constexpr double kMaxEpochs = 1e6;

std::vector<std::int64_t> milestones_option(const OptionValues& values) {
  const std::string text = text_option(values, "lr-milestones");
  std::vector<std::int64_t> epochs;
  if (text.empty()) return epochs;
  try {
    for (const std::string& word : split_list(text, ','))
      epochs.push_back(parse_integer(word));
  } catch (const Error& error) {
    throw option_error(values, "lr-milestones", error.what(), "give epochs, as 30,60,80");
  }
  return epochs;
}

void read_batch_schedule(const OptionValues& values, TrainOptions& options) {
  const std::string text = text_option(values, "batch-schedule");
  if (text.empty()) return;
  for (const char* other : {"batch-per-rank", "batch-global"})
    if (text_option(values, other) != kAuto)
      throw option_error(
          values, "batch-schedule",
          fmt::format("it says the batch, and so does {} ({})", other, values.at(other).where),
          fmt::format("leave one of them out (`{} = auto`)", other));
  options.batch_schedule = BatchSchedule(text);
  options.batch_schedule.require_fits(options.epochs, 1);
}

}  // namespace

TrainOptionTable learning_rate_options() {
  using enum OptionRole;
  const std::string group = "Learning rate over the run";
  return {
      {kTraining, "lr-scaling", joined(learning_rate_scalings()), "none",
       "scale --lr by the global batch over --base-batch, or by the root of that", group},
      {kTraining, "base-batch", "N", "128",
       "the global batch that --lr is meant for, 1 to 1000000000", group},
      {kTraining, "warmup-epochs", "X", "0", "epochs before the full rate, 0 to below --epochs",
       group},
      {kTraining, "warmup-rate", joined(learning_rate_warmups()), "gradual",
       "in the warm-up: rise in a line, or stay low and jump", group},
      {kTraining, "warmup-from", "X", kAuto,
       "the rate it starts at, 0 to 1000; auto: --lr before scaling, or a tenth of it without",
       group},
      {kTraining, "lr-schedule", joined(learning_rate_schedules()), "constant", "after the warm-up",
       group},
      {kTraining, "lr-min", "X", "0", "cosine, polynomial, cyclic: the lowest rate, 0 to 1000",
       group},
      {kTraining, "lr-decay", "X", "0.1", "step, multistep: factor of each fall, 0 to 1", group},
      {kTraining, "lr-step-epochs", "N", "0", "step: epochs between two falls", group},
      {kTraining, "lr-milestones", "N,N,…", "", "multistep: the epochs of the falls", group},
      {kTraining, "lr-power", "X", "1", "polynomial: its power, 0 to 100", group},
      {kTraining, "lr-cycle-epochs", "X", "0", "cyclic: epochs of one rise and fall", group},
      {kStep, "batch-schedule", "EPOCH:BATCH,…", "",
       "global batch from each epoch on, as 0:128,3:512, in place of --batch-global", group},
  };
}

void read_learning_rate(const OptionValues& values, TrainOptions& options) {
  LearningRateSettings& rate = options.learning_rate;
  rate.base = number_option(values, "lr", 0, 1e3);
  rate.scaling = choice_option(values, "lr-scaling", learning_rate_scalings());
  rate.base_batch = integer_option(values, "base-batch", 1, kMaxBatch);
  rate.epochs = options.epochs;
  rate.warmup_epochs = number_option(values, "warmup-epochs", 0, kMaxEpochs);
  rate.warmup = choice_option(values, "warmup-rate", learning_rate_warmups());
  if (text_option(values, "warmup-from") != kAuto)
    rate.warmup_from = number_option(values, "warmup-from", 0, 1e3);
  rate.schedule = choice_option(values, "lr-schedule", learning_rate_schedules());
  rate.minimum = number_option(values, "lr-min", 0, 1e3);
  rate.decay = number_option(values, "lr-decay", 0, 1);
  rate.step_epochs = integer_option(values, "lr-step-epochs", 0, 1'000'000);
  rate.milestones = milestones_option(values);
  rate.power = number_option(values, "lr-power", 0, 100);
  rate.cycle_epochs = number_option(values, "lr-cycle-epochs", 0, kMaxEpochs);
  require_covered(rate);
  read_batch_schedule(values, options);
}

}  // namespace gradsync
