#include "analysis/published/printed_epochs.h"

#include <cctype>
#include <map>
#include <tuple>

#include <fmt/format.h>

namespace gradsync::report::published {

namespace {

// "2" for epoch_2_time.
std::string epoch_number(const std::string& quantity) {
  std::string digits;
  for (const char c : quantity)
    if (std::isdigit(static_cast<unsigned char>(c))) digits += c;
  return digits;
}

double* loss_place(PrintedEpoch& epoch, const std::string& quantity) {
  if (quantity.starts_with("train")) return &epoch.train_loss;
  return quantity.starts_with("test") ? &epoch.test_loss : &epoch.loss;
}

double* accuracy_place(PrintedEpoch& epoch, const std::string& quantity) {
  if (quantity.starts_with("train")) return &epoch.train_accuracy;
  return quantity.starts_with("test") ? &epoch.test_accuracy : &epoch.accuracy;
}

double* place_of(PrintedEpoch& epoch, const Row& row) {
  switch (row.what.kind) {
    case Kind::kEpochTime:
      return &epoch.epoch_s;
    case Kind::kTrainingTime:
      return &epoch.training_s;
    case Kind::kRunningTime:
      return &epoch.running_s;
    case Kind::kIterationTime:
      return &epoch.iteration_s;
    case Kind::kLoss:
      return row.quantity.starts_with("loss_iter") ? nullptr : loss_place(epoch, row.quantity);
    case Kind::kAccuracy:
      return accuracy_place(epoch, row.quantity);
    case Kind::kCorrect:
      return row.unit.total > 0 ? &epoch.test_accuracy : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace

double PrintedEpoch::batch_global() const {
  if (row->devices == kNotSaid || row->batch_per_device == kNotSaid) return kNone;
  return static_cast<double>(row->devices) * static_cast<double>(row->batch_per_device);
}

std::vector<PrintedEpoch> printed_epochs(const Study& study) {
  using Key = std::tuple<std::string, std::string, std::string, std::string, std::int64_t,
                         std::int64_t, std::string, std::string>;
  std::map<Key, std::size_t> known;
  std::vector<PrintedEpoch> epochs;
  for (const Row& row : study.rows()) {
    PrintedEpoch unplaced;
    if (!row.usable() || !place_of(unplaced, row)) continue;
    const std::string number = epoch_number(row.quantity);
    const auto [at, added] =
        known.emplace(Key{row.report, row.table, row.model, row.mode, row.devices,
                          row.batch_per_device, row.extra, number},
                      epochs.size());
    if (added) epochs.push_back(unplaced);
    PrintedEpoch& epoch = epochs[at->second];
    if (added) epoch.row = &row;
    epoch.number = number;
    const bool counted = row.what.kind == Kind::kCorrect;
    *place_of(epoch, row) = row.range().value / (counted ? row.unit.total : 1);
    epoch.lines.push_back(row.line);
  }
  return epochs;
}

std::string full_batch_remark(const PrintedEpoch& epoch, const AuditOptions& options) {
  if (!(epoch.batch_global() > options.images)) return {};
  return fmt::format("full batch: one step over all {:.0f} images, as any larger batch",
                     options.images);
}

std::vector<Column> learning_columns() {
  const std::string printed = "as printed";
  return {{"loss", "loss", false, printed, "epoch_N_loss"},
          {"accuracy_percent", "accuracy %", false, printed, "epoch_N_accuracy"},
          {"train_loss", "train loss", false, printed, "train_loss"},
          {"train_accuracy_percent", "train %", false, printed, "train_accuracy"},
          {"test_loss", "test loss", false, printed, "test_loss"},
          {"test_accuracy_percent", "test %", false, "as printed, or right / all", "test_correct"}};
}

std::vector<Cell> learning_cells(const PrintedEpoch& epoch) {
  return {Cell::of(epoch.loss, 4),       Cell::of(1e2 * epoch.accuracy, 2),
          Cell::of(epoch.train_loss, 4), Cell::of(1e2 * epoch.train_accuracy, 2),
          Cell::of(epoch.test_loss, 4),  Cell::of(1e2 * epoch.test_accuracy, 2)};
}

}  // namespace gradsync::report::published
