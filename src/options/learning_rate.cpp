// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/parse.h"
#include "options/option_roles.h"
#include "options/options.h"

namespace gradsync {

namespace {

/// Part of the full rate to start from where neither scaling nor the user names one below it.
constexpr double kUnscaledStart = 0.1;

void require(bool holds, const std::string& what, const std::string& fix) {
  if (!holds) throw Error(ExitCode::kUsage, what, fix);
}

void require_warmup(const LearningRateSettings& settings) {
  const auto epochs = static_cast<double>(settings.epochs);
  require(settings.warmup_epochs == 0 || settings.warmup_epochs < epochs,
          fmt::format("--warmup-epochs {} leaves none of the {} epochs at the full rate",
                      settings.warmup_epochs, settings.epochs),
          fmt::format("0 to below {}, or more --epochs", settings.epochs));
}

void require_milestones(const LearningRateSettings& settings) {
  const auto& falls = settings.milestones;
  const auto outside = [&](std::int64_t epoch) { return epoch < 1 || epoch >= settings.epochs; };
  require(!falls.empty(), "--lr-schedule multistep without --lr-milestones",
          "give the epochs at which the rate is reduced, as --lr-milestones 30,60");
  require(std::ranges::adjacent_find(falls, std::greater_equal<>()) == falls.end(),
          fmt::format("--lr-milestones {} are not increasing", fmt::join(falls, ",")),
          "give each epoch once, in order");
  require(std::ranges::none_of(falls, outside),
          fmt::format("--lr-milestones {} lie outside the {} epochs of the run",
                      fmt::join(falls, ","), settings.epochs),
          fmt::format("epochs from 1 to {}, or more --epochs", settings.epochs - 1));
}

void require_schedule(const LearningRateSettings& settings) {
  const LrSchedule schedule = settings.schedule;
  const auto epochs = static_cast<double>(settings.epochs);
  if (schedule == LrSchedule::kMultistep) require_milestones(settings);
  if (schedule == LrSchedule::kStep)
    require(settings.step_epochs >= 1 && settings.step_epochs < settings.epochs,
            fmt::format("--lr-step-epochs {} does not fall within the {} epochs of the run",
                        settings.step_epochs, settings.epochs),
            fmt::format("1 to {}", settings.epochs - 1));
  if (schedule == LrSchedule::kCyclic)
    require(settings.cycle_epochs > 0 && settings.cycle_epochs <= epochs,
            fmt::format("--lr-cycle-epochs {} does not fit in the {} epochs of the run",
                        settings.cycle_epochs, settings.epochs),
            fmt::format("above 0, to {}", settings.epochs));
}

double scale(const LearningRateSettings& settings) {
  const double ratio =
      static_cast<double>(settings.global_batch) / static_cast<double>(settings.base_batch);
  if (settings.scaling == LrScaling::kLinear) return ratio;
  return settings.scaling == LrScaling::kSqrt ? std::sqrt(ratio) : 1;
}

}  // namespace

void require_covered(const LearningRateSettings& settings) {
  require_warmup(settings);
  require_schedule(settings);
}

LearningRate::LearningRate(LearningRateSettings settings) : settings_(std::move(settings)) {
  require_covered(settings_);
  full_ = settings_.base * scale(settings_);
  const double start = full_ > settings_.base ? settings_.base : kUnscaledStart * full_;
  from_ = settings_.warmup_from < 0 ? start : settings_.warmup_from;
  require(settings_.minimum <= full_,
          fmt::format("--lr-min {} is above the full rate {}", settings_.minimum, full_),
          fmt::format("0 to {}", full_));
}

double LearningRate::at(double epoch) const {
  if (epoch < settings_.warmup_epochs) return warming(epoch);
  const LrSchedule schedule = settings_.schedule;
  if (schedule == LrSchedule::kConstant) return full_;
  if (schedule == LrSchedule::kStep || schedule == LrSchedule::kMultistep) return falls(epoch);
  if (schedule == LrSchedule::kCyclic) return cyclic(epoch - settings_.warmup_epochs);
  const double length = static_cast<double>(settings_.epochs) - settings_.warmup_epochs;
  const double u = std::clamp((epoch - settings_.warmup_epochs) / length, 0.0, 1.0);
  const double share = schedule == LrSchedule::kCosine ? (1 + std::cos(std::numbers::pi * u)) / 2
                                                       : std::pow(1 - u, settings_.power);
  return settings_.minimum + (full_ - settings_.minimum) * share;
}

double LearningRate::warming(double epoch) const {
  if (settings_.warmup == LrWarmup::kConstant) return from_;
  return from_ + (full_ - from_) * epoch / settings_.warmup_epochs;
}

double LearningRate::falls(double epoch) const {
  const auto& milestones = settings_.milestones;
  const auto passed = [&] {
    const auto end = std::ranges::upper_bound(milestones, epoch, [](double t, std::int64_t fall) {
      return t < static_cast<double>(fall);
    });
    return static_cast<double>(end - milestones.begin());
  };
  const double count = settings_.schedule == LrSchedule::kMultistep
                           ? passed()
                           : std::floor(epoch / static_cast<double>(settings_.step_epochs));
  return full_ * std::pow(settings_.decay, count);
}

double LearningRate::cyclic(double since_warmup) const {
  const double position = std::fmod(since_warmup, settings_.cycle_epochs) / settings_.cycle_epochs;
  const double height = 1 - std::abs(2 * position - 1);
  return settings_.minimum + (full_ - settings_.minimum) * height;
}

namespace {

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
  throw Error(ExitCode::kUsage, fmt::format("--batch-schedule {}: {}", text, why),
              "EPOCH:BATCH pairs from epoch 0 on, as 0:128,3:512");
}

std::int64_t count_of(const std::string& text, const std::string& word, std::int64_t lowest) {
  std::int64_t count = -1;
  try {
    count = parse_integer(word);
  } catch (const Error&) {
    refuse(text, fmt::format("\"{}\" is not a whole number", word));
  }
  if (count < lowest) refuse(text, fmt::format("{} is below {}", word, lowest));
  if (count > kMaxIterations) refuse(text, fmt::format("{} is above {}", word, kMaxIterations));
  return count;
}

}  // namespace

BatchSchedule::BatchSchedule(std::string_view text) : text_(text) {
  for (const std::string& pair : split_list(text_, ',')) {
    const std::size_t colon = pair.find(':');
    if (colon == std::string::npos) refuse(text_, fmt::format("\"{}\" has no colon", pair));
    phases_.push_back(
        {count_of(text_, pair.substr(0, colon), 0), count_of(text_, pair.substr(colon + 1), 1)});
  }
  if (phases_.empty() || phases_.front().epoch != 0) refuse(text_, "epoch 0 is missing");
  const auto same_or_earlier = [](const Phase& a, const Phase& b) { return a.epoch >= b.epoch; };
  if (std::ranges::adjacent_find(phases_, same_or_earlier) != phases_.end())
    refuse(text_, "the epochs are not increasing");
}

void BatchSchedule::require_fits(std::int64_t epochs, std::int64_t shares) const {
  for (const Phase& phase : phases_) {
    if (phase.epoch >= epochs)
      refuse(text_,
             fmt::format("epoch {} lies beyond the {} epochs of the run", phase.epoch, epochs));
    if (phase.batch % shares != 0)
      refuse(text_,
             fmt::format("{} does not divide by {} (ranks × accumulate)", phase.batch, shares));
  }
}

std::int64_t BatchSchedule::at(std::int64_t epoch) const {
  const auto next = std::ranges::upper_bound(phases_, epoch, {}, &Phase::epoch);
  return std::prev(next)->batch;
}

}  // namespace gradsync
