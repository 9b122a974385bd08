#include <algorithm>
#include <cmath>
#include <tuple>

#include "analysis/published/printed_epochs.h"
#include "analysis/published/published_tables.h"
#include "analysis/published/setting_cells.h"

namespace gradsync::report::published {

namespace {

using Epochs = std::vector<PrintedEpoch>;

bool says_how_well(const PrintedEpoch& epoch) {
  for (const double value : {epoch.loss, epoch.accuracy, epoch.train_loss, epoch.train_accuracy,
                             epoch.test_loss, epoch.test_accuracy})
    if (std::isfinite(value)) return true;
  return false;
}

auto setting(const PrintedEpoch& epoch) {
  const Row& row = *epoch.row;
  return std::tie(row.report, row.table, row.model, row.mode, row.devices, row.batch_per_device,
                  row.extra);
}

/// "10" is later than "9"; an epoch without a number is the end.
bool is_earlier(const PrintedEpoch& a, const PrintedEpoch& b) {
  if (a.number.empty() || b.number.empty()) return !a.number.empty() && b.number.empty();
  return std::pair(a.number.size(), a.number) < std::pair(b.number.size(), b.number);
}

/// The last epoch of each setting that has a loss or an accuracy.
Epochs last_epochs(const Study& study) {
  Epochs last;
  for (const PrintedEpoch& epoch : printed_epochs(study)) {
    if (!says_how_well(epoch)) continue;
    const auto known = std::find_if(last.begin(), last.end(), [&](const PrintedEpoch& one) {
      return setting(one) == setting(epoch);
    });
    if (known == last.end())
      last.push_back(epoch);
    else if (is_earlier(*known, epoch))
      *known = epoch;
  }
  return last;
}

/// What an accuracy is set against: that of the smallest batch of the same table, model and epoch.
const PrintedEpoch* smallest_batch(const Epochs& epochs, const PrintedEpoch& epoch) {
  const PrintedEpoch* smallest = nullptr;
  for (const PrintedEpoch& one : epochs)
    if (one.row->report == epoch.row->report && one.row->table == epoch.row->table &&
        one.row->model == epoch.row->model && one.number == epoch.number &&
        std::isfinite(one.batch_global()) &&
        (!smallest || one.batch_global() < smallest->batch_global()))
      smallest = &one;
  return smallest;
}

/// The best known accuracy: of test before training, said which before not.
double accuracy(const PrintedEpoch& epoch) {
  for (const double value : {epoch.test_accuracy, epoch.accuracy, epoch.train_accuracy})
    if (std::isfinite(value)) return value;
  return PrintedEpoch::kNone;
}

std::vector<Column> large_batch_columns() {
  std::vector<Column> result = setting_columns();
  const std::string printed = "as printed";
  append(result, {{"table", "table", true}, {"epoch", "epoch", true}});
  append(result, learning_columns());
  append(result, {{"base_batch_global", "base global", false, "smallest global batch of the table",
                   "batch_per_device"},
                  {"accuracy_change_points", "accuracy, points", false,
                   "accuracy % - accuracy % at the base's batch", "epoch_N_accuracy"},
                  {"remark", "remark", true}});
  return result;
}

std::vector<Cell> large_batch_row_of(const PrintedEpoch& epoch, const PrintedEpoch* base,
                                     const AuditOptions& options) {
  const double base_batch = base ? base->batch_global() : PrintedEpoch::kNone;
  const double change = base ? accuracy(epoch) - accuracy(*base) : PrintedEpoch::kNone;
  std::vector<Cell> cells = setting_cells(*epoch.row);
  append(cells, {epoch.row->table, epoch.number.empty() ? "-" : epoch.number});
  append(cells, learning_cells(epoch));
  append(cells,
         {Cell::count(base_batch), Cell::of(1e2 * change, 2), full_batch_remark(epoch, options)});
  return cells;
}

}  // namespace

Table make_published_large_batch_table(const Study& study, const Audit& audit) {
  Table table{"published-large-batch",
              "Accuracy at large batch, published numbers of " + study.file().name,
              {"the last epoch of which a table prints loss or accuracy; epoch -: it does not say "
               "which. Loss, accuracy: where the report does not say whether of training or test",
               "accuracy, points: against the smallest global batch of the same table, model and "
               "epoch; of test where the report states it",
               "remedies (learning rate, warm-up) and repeats are not in the published format: a "
               "difference may be due to chance"},
              large_batch_columns(),
              {}};
  const Epochs epochs = last_epochs(study);
  for (const PrintedEpoch& epoch : epochs) {
    const PrintedEpoch* base = smallest_batch(epochs, epoch);
    std::vector<std::size_t> lines = epoch.lines;
    if (base) lines.insert(lines.end(), base->lines.begin(), base->lines.end());
    table.add(large_batch_row_of(epoch, base, audit.options), source_text(study, lines));
  }
  return table;
}

}  // namespace gradsync::report::published
