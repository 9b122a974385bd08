#include <fmt/format.h>

#include "base/parse.h"
#include "options/option_groups.h"

namespace gradsync {

namespace {

using Value = BoundValue<TrainOptions>;

std::vector<std::int64_t> parse_milestones(const std::string& text) {
  std::vector<std::int64_t> epochs;
  if (text.empty()) return epochs;
  try {
    for (const std::string& word : split_list(text, ','))
      epochs.push_back(parse_integer(word));
  } catch (const Error& error) {
    throw Error(ExitCode::kUsage, error.what(), "give epochs, as 30,60,80");
  }
  return epochs;
}

BatchSchedule parse_batch_schedule(const std::string& text) {
  return text.empty() ? BatchSchedule() : BatchSchedule(text);
}

}  // namespace

TrainOptionTable learning_rate_options() {
  using enum OptionRole;
  using S = LearningRateSettings;
  constexpr std::int64_t kMaxBatch = 1'000'000'000;
  constexpr double kMaxEpochs = 1e6, kMaxRate = 1e3;
  const auto rate = [](auto place) { return part_of(&TrainOptions::learning_rate, place); };
  return {
      {kTraining, "lr-scaling", Value::choice(rate(&S::scaling), learning_rate_scalings()),
       "scale --lr by the global batch over --base-batch, or by the square root of that"},
      {kTraining, "base-batch", Value::integer(rate(&S::base_batch), 1, kMaxBatch),
       "the global batch that --lr is meant for"},
      {kTraining, "warmup-epochs", Value::number(rate(&S::warmup_epochs), 0, kMaxEpochs),
       "epochs before the full rate, fewer than --epochs"},
      {kTraining, "warmup-rate", Value::choice(rate(&S::warmup), learning_rate_warmups()),
       "warm-up: linear ramp (gradual), or constant and then the full rate (constant)"},
      {kTraining, "warmup-from",
       Value::word_or(kAuto, rate(&S::warmup_from), -1.0,
                      Value::number(rate(&S::warmup_from), 0, kMaxRate)),
       "initial rate of the warm-up; auto: --lr before scaling, or a tenth of it without scaling"},
      {kTraining, "lr-schedule", Value::choice(rate(&S::schedule), learning_rate_schedules()),
       "after the warm-up"},
      {kTraining, "lr-min", Value::number(rate(&S::minimum), 0, kMaxRate),
       "cosine, polynomial, cyclic: the lowest rate"},
      {kTraining, "lr-decay", Value::number(rate(&S::decay), 0, 1),
       "step, multistep: decay factor"},
      {kTraining, "lr-step-epochs", Value::integer(rate(&S::step_epochs), 0, kMaxCount),
       "step: epochs between two decays"},
      {kTraining, "lr-milestones",
       Value::parsed("N,N,…", "", rate(&S::milestones), parse_milestones),
       "multistep: the milestone epochs"},
      {kTraining, "lr-power", Value::number(rate(&S::power), 0, 100), "polynomial: its power"},
      {kTraining, "lr-cycle-epochs", Value::number(rate(&S::cycle_epochs), 0, kMaxEpochs),
       "cyclic: epochs of one rise and fall"},
      {kStep, "batch-schedule",
       Value::parsed("EPOCH:BATCH,…", "", &TrainOptions::batch_schedule, parse_batch_schedule),
       "global batch from each epoch on, as 0:128,3:512, instead of --batch-global"},
  };
}

void require_rate_possible(const OptionValues& values, const TrainOptions& options) {
  require_covered(options.learning_rate);
  if (options.batch_schedule.empty()) return;
  for (const char* other : {"batch-per-rank", "batch-global"})
    if (text_option(values, other) != kAuto)
      throw option_error(
          values, "batch-schedule",
          fmt::format("it sets the batch, as {} ({}) does", other, values.at(other).where),
          fmt::format("leave one of them out (`{} = auto`)", other));
  options.batch_schedule.require_fits(options.epochs, 1);
}

}  // namespace gradsync
