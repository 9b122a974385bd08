#include "analysis/published/printed_epochs.h"
#include "analysis/published/published_tables.h"
#include "analysis/published/setting_cells.h"
#include "analysis/tables/group_cells.h"

namespace gradsync::published {

namespace {

constexpr double kNone = PrintedEpoch::kNone;

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

std::string remark(const PrintedEpoch& epoch, const AuditOptions& options) {
  const std::string full = full_batch_remark(epoch, options);
  if (epoch.number != "1") return full;
  return full.empty() ? "first epoch: warm-up" : "first epoch: warm-up; " + full;
}

std::vector<Cell> row_of(const PrintedEpoch& epoch, const AuditOptions& options) {
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
  for (const PrintedEpoch& epoch : printed_epochs(study))
    table.add(row_of(epoch, audit.options), source_text(study, epoch.lines));
  return table;
}

}  // namespace gradsync::published
