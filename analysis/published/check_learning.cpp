#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "analysis/published/checks.h"

namespace gradsync::report::published {

namespace {

constexpr const char* kLearningCheck = "learning";
constexpr double kClasses = 10;  // of CIFAR-10, whose scores these reports print

std::string learning_where(const Row& row) {
  return fmt::format("{}{}{}", row.mode, row.mode.empty() ? "" : ", ",
                     setting_text(row.devices, row.batch_per_device));
}

// "epoch_2_accuracy" for "epoch_2_loss".
std::string accuracy_name(std::string loss) {
  const std::size_t at = loss.find("loss");
  return at == std::string::npos ? "" : loss.replace(at, 4, "accuracy");
}

const Row* accuracy_beside(const Study& study, const Row& loss) {
  const std::string name = accuracy_name(loss.quantity);
  for (const Row* row : study.setting_of(loss))
    if (row->quantity == name && row->table == loss.table && row->usable()) return row;
  return nullptr;
}

double smallest_iteration_loss(const Study& study, const Row& loss) {
  double smallest = NAN;
  for (const Row* row : study.setting_of(loss))
    if (row->what.kind == Kind::kLoss && row->quantity.starts_with("loss_iter") &&
        row->table == loss.table)
      smallest = std::fmin(smallest, row->value);
  return smallest;
}

struct LearningFaults {
  Tally impossible, diverged, divided, broken;
};

std::string pair_text(const Row& loss, const Row& accuracy) {
  return fmt::format("{}: loss {} at {} %", learning_where(loss), loss.text,
                     fmt::format("{:.4g}", 100 * accuracy.range().value));
}

// A wrong answer gives the right class at most half of the probability, so its loss is at least
// ln 2: the mean is at least (1 − accuracy) · ln 2.
void judge_pair(const Study& study, const Row& loss, const Row& accuracy, LearningFaults& faults) {
  constexpr double kChance = 1.3 / kClasses, kFarAbove = 1.3;
  const std::vector<std::size_t> lines = {loss.line, accuracy.line};
  const double at_least = (1 - accuracy.range().high) * std::log(2.0);
  if (loss.value >= 0 && loss.range().high < at_least)
    faults.impossible.add(
        fmt::format("{} needs at least {:.4g}", pair_text(loss, accuracy), at_least), lines);
  if (accuracy.range().value > kChance) return;
  if (loss.value > kFarAbove * std::log(kClasses))
    faults.diverged.add(pair_text(loss, accuracy), lines);
  const double smallest = smallest_iteration_loss(study, loss);
  if (smallest > kFarAbove * loss.value && loss.value < std::log(kClasses) / kFarAbove)
    faults.divided.add(
        fmt::format("{}, printed iterations {:.4g} or more; needs a count {:.2g} times smaller",
                    pair_text(loss, accuracy), smallest, smallest / loss.value),
        lines);
}

double distance_to_whole(double value) {
  return std::abs(value - std::round(value));
}

// accuracy · images is a whole number unless batches of unequal size were averaged alike; then
// accuracy · batches · (common multiple of the two sizes) is one.
bool is_mean_of_batches(double accuracy, double images, double batch) {
  const double full = std::floor(images / batch), rest = images - full * batch;
  if (rest <= 0) return false;
  const auto multiple = static_cast<double>(
      std::lcm(static_cast<std::int64_t>(batch), static_cast<std::int64_t>(rest)));
  const double scaled = accuracy * (full + 1) * multiple;
  constexpr double kMostForFloats = 1e6;  // above, single precision is too coarse
  return scaled < kMostForFloats && distance_to_whole(scaled) < 1e-3;
}

void judge_count(const Row& row, double images, LearningFaults& faults) {
  constexpr double kTellsWhole = 0.01;
  const Range accuracy = row.range();
  if ((accuracy.high - accuracy.low) * images > kTellsWhole || images != std::floor(images)) return;
  if (distance_to_whole(accuracy.value * images) < kTellsWhole) return;
  const double batch = static_cast<double>(row.batch_per_device) * static_cast<double>(row.devices);
  const bool batches = row.devices != kNotSaid && row.batch_per_device != kNotSaid &&
                       batch < images && is_mean_of_batches(accuracy.value, images, batch);
  faults.broken.add(
      fmt::format("{}: {} % of {} are {} images{}", learning_where(row),
                  fmt::format("{:.8g}", 100 * accuracy.value), with_commas(images),
                  fmt::format("{:.2f}", accuracy.value * images),
                  batches ? fmt::format(", but a whole number in the mean over batches of {:.0f} "
                                        "whose last one is smaller",
                                        batch)
                          : ""),
      {row.line});
}

void learning_check_report(const Study& study, const std::string& report, Audit& audit) {
  LearningFaults faults;
  for (const Row* row : study.rows_of(report)) {
    if (!row->usable()) continue;
    if (row->what.kind == Kind::kAccuracy && !row->quantity.starts_with("test"))
      judge_count(*row, audit.options.images, faults);
    const Row* accuracy = row->what.kind == Kind::kLoss ? accuracy_beside(study, *row) : nullptr;
    if (accuracy) judge_pair(study, *row, *accuracy, faults);
  }
  const std::string chance = fmt::format("ln {:.0f} = {:.3f}", kClasses, std::log(kClasses));
  report_tally(audit, report, Severity::kImpossible, kLearningCheck,
               "loss too small for its accuracy", faults.impossible,
               {"A wrong answer costs at least ln 2, so the mean cross-entropy is at least (1 - "
                "accuracy) * ln 2.",
                "loss and accuracy are of different epochs or images"});
  report_tally(audit, report, Severity::kContradicted, kLearningCheck,
               "training loss far below each printed iteration loss, at chance accuracy",
               faults.divided,
               {fmt::format("At chance a loss is about {} or more: most likely the sum was "
                            "divided by too large a count.",
                            chance),
                "the count is smaller by the factor that the cell names"});
  report_tally(audit, report, Severity::kDoubtful, kLearningCheck,
               "loss above guessing, accuracy at chance", faults.diverged,
               {fmt::format("Guessing among {:.0f} classes gives {}: the training diverged, so the "
                            "row says nothing about what this batch can reach.",
                            kClasses, chance),
                "divergence is the result that the report states"});
  report_tally(audit, report, Severity::kDoubtful, kLearningCheck,
               "no whole number of right images", faults.broken,
               {"The accuracies of batches were averaged without their sizes, or it is of another "
                "set.",
                "it is called a mean over batches"});
}

}  // namespace

void check_learning(const Study& study, Audit& audit) {
  for (const std::string& report : study.reports())
    learning_check_report(study, report, audit);
}

}  // namespace gradsync::report::published
