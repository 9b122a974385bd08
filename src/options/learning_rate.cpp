#include "options/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace gradsync {

namespace {

/// Where neither scaling nor the user says what to start from.
constexpr double kUnscaledStart = 0.1;

void require(bool holds, const std::string& what, const std::string& fix) {
  if (!holds) throw Error(ExitCode::kUsage, what, fix);
}

void require_name(const std::string& option, const std::string& name,
                  const std::vector<std::string>& names) {
  require(std::find(names.begin(), names.end(), name) != names.end(),
          fmt::format("{} {} is unknown", option, name),
          fmt::format("one of {}", fmt::join(names, ", ")));
}

void require_names(const LearningRateSettings& settings) {
  require_name("--lr-scaling", settings.scaling, learning_rate_scalings());
  require_name("--warmup-rate", settings.warmup, learning_rate_warmups());
  require_name("--lr-schedule", settings.schedule, learning_rate_schedules());
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
  require(std::adjacent_find(falls.begin(), falls.end(), std::greater_equal<>()) == falls.end(),
          fmt::format("--lr-milestones {} are not increasing", fmt::join(falls, ",")),
          "give each epoch once, in order");
  require(std::none_of(falls.begin(), falls.end(), outside),
          fmt::format("--lr-milestones {} lie outside the {} epochs of the run",
                      fmt::join(falls, ","), settings.epochs),
          fmt::format("epochs from 1 to {}, or more --epochs", settings.epochs - 1));
}

void require_schedule(const LearningRateSettings& settings) {
  const std::string& schedule = settings.schedule;
  const auto epochs = static_cast<double>(settings.epochs);
  if (schedule == "multistep") require_milestones(settings);
  if (schedule == "step")
    require(settings.step_epochs >= 1 && settings.step_epochs < settings.epochs,
            fmt::format("--lr-step-epochs {} does not fall within the {} epochs of the run",
                        settings.step_epochs, settings.epochs),
            fmt::format("1 to {}", settings.epochs - 1));
  if (schedule == "cyclic")
    require(settings.cycle_epochs > 0 && settings.cycle_epochs <= epochs,
            fmt::format("--lr-cycle-epochs {} does not fit in the {} epochs of the run",
                        settings.cycle_epochs, settings.epochs),
            fmt::format("above 0, to {}", settings.epochs));
}

double scale(const LearningRateSettings& settings) {
  const double ratio =
      static_cast<double>(settings.global_batch) / static_cast<double>(settings.base_batch);
  if (settings.scaling == "linear") return ratio;
  return settings.scaling == "sqrt" ? std::sqrt(ratio) : 1;
}

}  // namespace

void require_covered(const LearningRateSettings& settings) {
  require_names(settings);
  require_warmup(settings);
  require_schedule(settings);
}

LearningRate::LearningRate(LearningRateSettings settings) : settings_(std::move(settings)) {
  require_covered(settings_);
  full_ = settings_.base * scale(settings_);
  const double start = full_ == settings_.base ? kUnscaledStart * full_ : settings_.base;
  from_ = settings_.warmup_from < 0 ? start : settings_.warmup_from;
  require(settings_.minimum <= full_,
          fmt::format("--lr-min {} is above the full rate {}", settings_.minimum, full_),
          fmt::format("0 to {}", full_));
}

double LearningRate::at(double epoch) const {
  if (epoch < settings_.warmup_epochs) return warming(epoch);
  const std::string& schedule = settings_.schedule;
  if (schedule == "constant") return full_;
  if (schedule == "step" || schedule == "multistep") return falls(epoch);
  if (schedule == "cyclic") return cyclic(epoch - settings_.warmup_epochs);
  const double length = static_cast<double>(settings_.epochs) - settings_.warmup_epochs;
  const double u = std::clamp((epoch - settings_.warmup_epochs) / length, 0.0, 1.0);
  const double share = schedule == "cosine" ? (1 + std::cos(std::numbers::pi * u)) / 2
                                            : std::pow(1 - u, settings_.power);
  return settings_.minimum + (full_ - settings_.minimum) * share;
}

double LearningRate::warming(double epoch) const {
  if (settings_.warmup == "constant") return from_;
  return from_ + (full_ - from_) * epoch / settings_.warmup_epochs;
}

double LearningRate::falls(double epoch) const {
  const auto& milestones = settings_.milestones;
  const auto passed = [&] {
    const auto end =
        std::upper_bound(milestones.begin(), milestones.end(), epoch,
                         [](double t, std::int64_t fall) { return t < static_cast<double>(fall); });
    return static_cast<double>(end - milestones.begin());
  };
  const double count = settings_.schedule == "multistep"
                           ? passed()
                           : std::floor(epoch / static_cast<double>(settings_.step_epochs));
  return full_ * std::pow(settings_.decay, count);
}

double LearningRate::cyclic(double since_warmup) const {
  const double position = std::fmod(since_warmup, settings_.cycle_epochs) / settings_.cycle_epochs;
  const double height = 1 - std::abs(2 * position - 1);
  return settings_.minimum + (full_ - settings_.minimum) * height;
}

const std::vector<std::string>& learning_rate_scalings() {
  static const std::vector<std::string> names = {"none", "linear", "sqrt"};
  return names;
}

const std::vector<std::string>& learning_rate_warmups() {
  static const std::vector<std::string> names = {"gradual", "constant"};
  return names;
}

const std::vector<std::string>& learning_rate_schedules() {
  static const std::vector<std::string> names = {"constant", "step",   "multistep",
                                                 "cosine",   "cyclic", "polynomial"};
  return names;
}

}  // namespace gradsync
