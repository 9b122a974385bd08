#include <cctype>
#include <limits>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "analysis/published/published_tables.h"
#include "analysis/published/setting_cells.h"
#include "analysis/tables/group_cells.h"

namespace gradsync::published {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// What one table of a report prints of one epoch of one setting.
struct Epoch {
  const Row* row = nullptr;
  std::string number;  ///< "2", or "" where the report does not say which
  double epoch_s = kNone, training_s = kNone, running_s = kNone, iteration_s = kNone;
  double loss = kNone, accuracy = kNone;
  double train_loss = kNone, train_accuracy = kNone, test_loss = kNone, test_accuracy = kNone;
  std::vector<std::size_t> lines;
};

// "2" for epoch_2_time.
std::string epoch_number(const std::string& quantity) {
  std::string digits;
  for (const char c : quantity)
    if (std::isdigit(static_cast<unsigned char>(c))) digits += c;
  return digits;
}

double* loss_place(Epoch& epoch, const std::string& quantity) {
  if (quantity.starts_with("train")) return &epoch.train_loss;
  return quantity.starts_with("test") ? &epoch.test_loss : &epoch.loss;
}

double* accuracy_place(Epoch& epoch, const std::string& quantity) {
  if (quantity.starts_with("train")) return &epoch.train_accuracy;
  return quantity.starts_with("test") ? &epoch.test_accuracy : &epoch.accuracy;
}

double* place_of(Epoch& epoch, const Row& row) {
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

std::vector<Epoch> epochs_of(const Study& study) {
  using Key = std::tuple<std::string, std::string, std::string, std::string, std::int64_t,
                         std::int64_t, std::string, std::string>;
  std::map<Key, std::size_t> known;
  std::vector<Epoch> epochs;
  for (const Row& row : study.rows()) {
    Epoch unplaced;
    if (!row.usable() || !place_of(unplaced, row)) continue;
    const std::string number = epoch_number(row.quantity);
    const auto [at, added] =
        known.emplace(Key{row.report, row.table, row.model, row.mode, row.devices,
                          row.batch_per_device, row.extra, number},
                      epochs.size());
    if (added) epochs.push_back(unplaced);
    Epoch& epoch = epochs[at->second];
    if (added) epoch.row = &row;
    epoch.number = number;
    const bool counted = row.what.kind == Kind::kCorrect;
    *place_of(epoch, row) = row.range().value / (counted ? row.unit.total : 1);
    epoch.lines.push_back(row.line);
  }
  return epochs;
}

std::vector<Column> columns() {
  std::vector<Column> result = setting_columns();
  const std::string printed = "as printed";
  const std::vector<Column> rest = {
      {"table", "table", true},
      {"epoch", "epoch", true},
      {"iterations", "iterations", false, "images / global batch, rounded up", "--images"},
      {"epoch_time_s", "epoch s", false, printed, "epoch_time"},
      {"training_s", "training s", false, printed, "training_time"},
      {"running_s", "running s", false, printed, "running_time"},
      {"extrapolated_s", "whole epoch, extrapolated s", false, "mean iteration x iterations",
       "mean_iteration_time"},
      {"images_per_s", "images/s", false, "images of the epoch / running time, else epoch time",
       "running_time, epoch_time"},
      {"loss", "loss", false, printed, "epoch_N_loss"},
      {"accuracy_percent", "accuracy %", false, printed, "epoch_N_accuracy"},
      {"train_loss", "train loss", false, printed, "train_loss"},
      {"train_accuracy_percent", "train %", false, printed, "train_accuracy"},
      {"test_loss", "test loss", false, printed, "test_loss"},
      {"test_accuracy_percent", "test %", false, "as printed, or right / all", "test_correct"},
      {"peak_memory_mib", "memory MiB"},
      {"remark", "remark", true}};
  result.insert(result.end(), rest.begin(), rest.end());
  return result;
}

std::string remark(const Epoch& epoch, const AuditOptions& options) {
  std::string text = epoch.number == "1" ? "first epoch: warm-up" : "";
  const auto global =
      static_cast<double>(epoch.row->devices) * static_cast<double>(epoch.row->batch_per_device);
  const bool known = epoch.row->devices != kNotSaid && epoch.row->batch_per_device != kNotSaid;
  if (known && global > options.images)
    text += fmt::format("{}full batch: one step over all {:.0f} images, as any larger batch",
                        text.empty() ? "" : "; ", options.images);
  return text;
}

std::vector<Cell> row_of(const Epoch& epoch, const AuditOptions& options) {
  const double iterations = iterations_of(*epoch.row, options);
  const double whole_s = epoch.running_s > 0 ? epoch.running_s : epoch.epoch_s;
  std::vector<Cell> cells = setting_cells(*epoch.row);
  const std::vector<Cell> rest = {epoch.row->table,
                                  epoch.number.empty() ? "-" : epoch.number,
                                  Cell::count(iterations),
                                  significant_cell(epoch.epoch_s),
                                  significant_cell(epoch.training_s),
                                  significant_cell(epoch.running_s),
                                  significant_cell(epoch.iteration_s * iterations),
                                  Cell::of(options.images / whole_s, 1),
                                  Cell::of(epoch.loss, 4),
                                  Cell::of(1e2 * epoch.accuracy, 2),
                                  Cell::of(epoch.train_loss, 4),
                                  Cell::of(1e2 * epoch.train_accuracy, 2),
                                  Cell::of(epoch.test_loss, 4),
                                  Cell::of(1e2 * epoch.test_accuracy, 2),
                                  Cell::of(kNone, 1),
                                  remark(epoch, options)};
  cells.insert(cells.end(), rest.begin(), rest.end());
  return cells;
}

}  // namespace

Table make_batch_size_table(const Study& study, const Audit& audit) {
  Table table{"published-batch-size",
              "Batch size against time and accuracy, published numbers of " + study.file().name,
              {"epoch s, loss, accuracy: where the report does not say whether of training or all "
               "of it, of training or test; epoch -: it does not say which",
               "ranks: devices; n/a: not published"},
              columns(),
              {}};
  for (const Epoch& epoch : epochs_of(study))
    table.add(row_of(epoch, audit.options), source_text(study, epoch.lines));
  return table;
}

}  // namespace gradsync::published
