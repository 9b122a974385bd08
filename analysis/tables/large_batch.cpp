// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include <fmt/format.h>

#include "analysis/figures/epoch_figures.h"
#include "analysis/tables/columns.h"
#include "analysis/tables/tables.h"
#include "base/parse.h"
#include "stats/estimate.h"

namespace gradsync::report {

namespace {

/// The epoch that published studies of large batches name.
constexpr std::int64_t kEarlyEpoch = 5;

struct LearntRow : CellRow {
  double learning_rate = kNotMeasured;
  std::string remedy = {};
  AccuracyAt at = {};
  Estimate test_percent = {};
  Estimate to_base = {}, to_none = {};  ///< changes of test accuracy in percentage points
  std::string remark = {};
};

Cell half_width(const Estimate& estimate) {
  return Cell::of((estimate.high - estimate.low) / 2, 2);
}

TableColumns<LearntRow> learnt_columns(bool with_settings) {
  using Row = LearntRow;
  const std::string over = "mean over ranks of the epoch; mean of the repeats";
  const char* student = "Student's t over the repeats, 95 %";
  const std::string welch = "Welch's t over the repeats, 95 %: half the interval";
  const std::string test = "/epoch/test_accuracy";
  TableColumns<Row> columns = cell_columns();
  for (RowColumn<Row>& one : columns)
    one.column.detail = 1;  // the global batch is what the table is about
  columns.add({{"learning_rate", "lr", "as configured", "/config/lr",
                [](const Row& row) {
                  return row.learning_rate < 0.01 ? significant_cell(row.learning_rate)
                                                  : Cell::of(row.learning_rate, 4);
                }},
               {"remedy", "remedy", kLabel, &Row::remedy, 0}});
  if (with_settings) columns.add(settings_column());
  columns.add(repeats_column());
  columns.add({{"epoch", "epoch", "--at-epoch, else the 5th and the last that all repeats have",
                "/epoch/number", [](const Row& row) { return known_count(row.at.epoch); }, 0},
               {"train_loss", "train loss", over, "/epoch/train_loss",
                [](const Row& row) { return Cell::of(mean(row.at.train_loss), 4); }},
               {"train_accuracy_percent", "train %", over, "/epoch/train_accuracy",
                [](const Row& row) { return Cell::of(mean(row.at.train_percent), 2); }},
               {"test_loss", "test loss", over, "/epoch/test_loss",
                [](const Row& row) { return Cell::of(mean(row.at.test_loss), 4); }},
               {"test_accuracy_percent", "test %", over, test, Ends{student},
                [](const Row& row, End end) { return Cell::of(row.test_percent.*end, 2); }, 0},
               {"fall_points", "to base", "test % - test % of the smallest batch", test,
                [](const Row& row) { return Cell::of(row.to_base.value, 2); }, 0},
               {"fall_reach_points", "±", welch, test,
                [](const Row& row) { return half_width(row.to_base); }},
               {"repair_points", "to none", "test % - test % of the same batch without remedy",
                test, [](const Row& row) { return Cell::of(row.to_none.value, 2); }, 0},
               {"repair_reach_points", "±", welch, test,
                [](const Row& row) { return half_width(row.to_none); }},
               {"remark", "remark", &Row::remark, 2}});
  return columns.add(name_column());
}

/// Options in which groups differ and that no other column shows.
std::vector<std::string> further_options(const std::vector<const RunGroup*>& groups) {
  auto options = differing_options(groups);
  std::erase_if(options, is_remedy_option);
  return options;
}

/// "base: set-epoch=true": in what else the group is not like what it is compared with.
std::string unlike(const char* what, const RunGroup& group, const RunGroup* other) {
  if (other == nullptr || other == &group) return {};
  const auto options = further_options({&group, other});
  return options.empty() ? "" : fmt::format("{}: {}", what, settings_text(other->first(), options));
}

class RowsAt {
 public:
  /// `epoch` 0: the last of each group.
  RowsAt(const std::vector<RunGroup>& groups, std::int64_t epoch)
      : groups_(groups),
        labels_(groups),
        settings_(further_options(pointers_to(groups))),
        epoch_(epoch) {}

  LearntRow row(const RunGroup& group) const {
    const RunGroup& base = smallest_batch(groups_, group);
    const RunGroup* plain = plain_group(groups_, group, base);
    const Run& run = group.first();
    LearntRow row{labels_.row(group),
                  parsed_or(parse_number, run.reader->option("lr"), kNotMeasured),
                  remedy_text(group, base), of(group)};
    row.batch_global = largest_batch(run);
    row.settings = settings_text(run, settings_);
    row.test_percent = mean_estimate(row.at.test_percent);
    row.to_base = difference(row.at, &base == &group ? nullptr : &base);
    row.to_none = difference(row.at, plain == &group ? nullptr : plain);
    const std::int64_t images = training_images(run);
    row.remark = remark_of(
        {!row.at.whole       ? "epoch cut off by --iterations"
         : row.at.epoch == 0 ? "did not reach the epoch"
                             : "",
         is_full_batch(run.batch_global, images)
             ? fmt::format("full batch: one step over all {} images, as any larger batch", images)
             : "",
         unlike("base", group, &base), unlike("none", group, plain)});
    return row;
  }

 private:
  AccuracyAt of(const RunGroup& group) const {
    return accuracy_at(group, epoch_ > 0 ? epoch_ : last_common_epoch(group));
  }
  Estimate difference(const AccuracyAt& at, const RunGroup* to) const {
    if (to == nullptr) return {};
    return difference_estimate(at.test_percent, accuracy_at(*to, at.epoch).test_percent);
  }

  const std::vector<RunGroup>& groups_;
  GroupLabels labels_;
  std::vector<std::string> settings_;
  std::int64_t epoch_;
};

/// One epoch if it is asked for; else the last, and the early one before it where runs continue.
std::vector<std::int64_t> epochs_of(const std::vector<RunGroup>& groups,
                                    const TableOptions& options) {
  if (options.at_epoch > 0) return {options.at_epoch};
  const bool continued = std::ranges::any_of(
      groups, [](const RunGroup& group) { return last_common_epoch(group) > kEarlyEpoch; });
  return continued ? std::vector<std::int64_t>{kEarlyEpoch, 0} : std::vector<std::int64_t>{0};
}

std::vector<std::string> large_batch_notes(const TableOptions& options) {
  return {
      options.at_epoch > 0
          ? fmt::format("at the end of epoch {} (--at-epoch)", options.at_epoch)
          : fmt::format(
                "at the end of epoch {}, where runs continue beyond it, and of the last epoch "
                "that all repeats have (--at-epoch chooses another)",
                kEarlyEpoch),
      "remedy: options that are meant to keep accuracy at a large batch, where they are on, and "
      "the learning rate where it differs from that of the model's smallest batch; \"none\": "
      "plain training. Of a batch schedule the largest batch is shown. Accumulation (global batch "
      "above ranks x batch/rank) emulates more ranks",
      "loss and accuracy: mean over ranks, mean of the repeats; low, high: 95 % interval of "
      "Student's t, n/a for one repeat",
      "to base, to none: percentage points of test accuracy above that of the model's smallest "
      "batch, and above that of the same batch and mode without remedy; ±: 95 % interval of "
      "Welch's t. A change beyond it is not explained by the seeds"};
}

}  // namespace

Table make_large_batch_table(const RunSet& set, const TableOptions& options) {
  const auto groups = group_runs(set);
  const auto columns = learnt_columns(!further_options(pointers_to(groups)).empty());
  Table table = columns.table("large-batch", "Accuracy at large batch", large_batch_notes(options));
  for (const std::int64_t epoch : epochs_of(groups, options)) {
    const RowsAt rows(groups, epoch);
    for (const RunGroup& group : groups)
      table.add(columns.cells(rows.row(group)), sources_of(group));
  }
  return table;
}

}  // namespace gradsync::report
