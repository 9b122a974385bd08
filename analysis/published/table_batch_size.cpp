#include "analysis/published/printed_epochs.h"
#include "analysis/published/published_tables.h"
#include "analysis/published/setting_cells.h"
#include "analysis/tables/columns.h"

namespace gradsync::report::published {

namespace {

constexpr double kBatchSizeNone = PrintedEpoch::kNone;

std::vector<Column> batch_size_columns() {
  std::vector<Column> result = setting_columns();
  const std::string printed = "as printed";
  append(result,
         {{"table", "table", true},
          {"epoch", "epoch", true},
          {"iterations", "iterations", false, "images / global batch, rounded up", "--images"},
          {"epoch_time_s", "epoch s", false, printed, "epoch_time"},
          {"training_s", "training s", false, printed, "training_time"},
          {"running_s", "running s", false, printed, "running_time"},
          {"extrapolated_s", "whole epoch, extrapolated s", false, "mean iteration x iterations",
           "mean_iteration_time"},
          {"images_per_s", "images/s", false, "images of the epoch / running time, else epoch time",
           "running_time, epoch_time"}});
  append(result, learning_columns());
  append(result, {{"peak_memory_mib", "memory MiB"}, {"remark", "remark", true}});
  return result;
}

std::string batch_size_remark(const PrintedEpoch& epoch, const AuditOptions& options) {
  const std::string full = full_batch_remark(epoch, options);
  if (epoch.number != "1") return full;
  return full.empty() ? "first epoch: warm-up" : "first epoch: warm-up; " + full;
}

std::vector<Cell> batch_size_row_of(const PrintedEpoch& epoch, const AuditOptions& options) {
  const double iterations = iterations_of(*epoch.row, options);
  const double whole_s = epoch.running_s > 0 ? epoch.running_s : epoch.epoch_s;
  std::vector<Cell> cells = setting_cells(*epoch.row);
  append(cells,
         {epoch.row->table, epoch.number.empty() ? "-" : epoch.number, Cell::count(iterations),
          significant_cell(epoch.epoch_s), significant_cell(epoch.training_s),
          significant_cell(epoch.running_s), significant_cell(epoch.iteration_s * iterations),
          Cell::of(options.images / whole_s, 1)});
  append(cells, learning_cells(epoch));
  append(cells, {Cell::of(kBatchSizeNone, 1), batch_size_remark(epoch, options)});
  return cells;
}

}  // namespace

Table make_published_batch_size_table(const Study& study, const Audit& audit) {
  Table table{"published-batch-size",
              "Batch size against time and accuracy, published numbers of " + study.file().name,
              {"epoch s, loss, accuracy: where the report does not say whether of training or all "
               "of it, of training or test; epoch -: it does not say which",
               "ranks: devices; n/a: not published"},
              batch_size_columns(),
              {}};
  for (const PrintedEpoch& epoch : printed_epochs(study))
    table.add(batch_size_row_of(epoch, audit.options), source_text(study, epoch.lines));
  return table;
}

}  // namespace gradsync::report::published
