#include <algorithm>

#include <fmt/format.h>

#include "analysis/metrics/epoch_figures.h"
#include "analysis/metrics/remedy.h"
#include "analysis/tables/group_cells.h"
#include "analysis/tables/run_cells.h"
#include "analysis/tables/tables.h"
#include "support/error.h"
#include "support/parse.h"
#include "timing/estimate.h"

namespace gradsync {

namespace {

/// The epoch asked for of each repeat that reached it.
struct AtEpoch {
  std::int64_t epoch = 0;  ///< from 1; 0: no repeat has it
  std::vector<double> train_loss, train_percent, test_loss, test_percent;
  bool whole = true;
};

std::int64_t last_common_epoch(const std::vector<std::vector<EpochFigures>>& repeats) {
  std::int64_t last = 0;
  for (const auto& epochs : repeats)
    if (!epochs.empty())
      last = last == 0 ? epochs.back().epoch + 1 : std::min(last, epochs.back().epoch + 1);
  return last;
}

AtEpoch figures_at(const RunGroup& group, std::int64_t wanted) {
  std::vector<std::vector<EpochFigures>> repeats;
  for (const Run* run : group.repeats)
    repeats.push_back(epoch_figures(*run));
  const std::int64_t epoch = wanted > 0 ? wanted : last_common_epoch(repeats);
  AtEpoch at;
  for (const auto& epochs : repeats)
    for (const EpochFigures& one : epochs) {
      if (one.epoch + 1 != epoch) continue;
      at.epoch = epoch;
      at.whole &= one.whole;
      at.train_loss.push_back(one.train_loss);
      at.train_percent.push_back(1e2 * one.train_accuracy);
      at.test_loss.push_back(one.test_loss);
      at.test_percent.push_back(1e2 * one.test_accuracy);
    }
  return at;
}

std::vector<Column> columns() {
  const std::string over = "mean over ranks of the epoch; median of the repeats";
  return {
      {"mode", "mode", true},
      {"model", "model", true},
      {"ranks", "ranks", false, "ranks of the run", "/topology/rank"},
      {"batch_per_rank", "batch/rank", false, "global batch / (ranks x accumulation)",
       "/config/batch-per-rank"},
      {"batch_global", "global", false, "ranks x batch per rank x accumulation",
       "/config/batch-global"},
      {"learning_rate", "lr", false, "as configured", "/config/lr"},
      {"remedy", "remedy", true},
      repeats_column(),
      {"epoch", "epoch", false, "--at-epoch, else the last that all repeats have", "/epoch/number"},
      {"train_loss", "train loss", false, over, "/epoch/train_loss"},
      {"train_accuracy_percent", "train %", false, over, "/epoch/train_accuracy"},
      {"test_loss", "test loss", false, over, "/epoch/test_loss"},
      {"test_accuracy_percent", "test %", false, over, "/epoch/test_accuracy"},
      {"test_accuracy_low_percent", "low", false, "order statistics over the repeats, 95 %",
       "/epoch/test_accuracy"},
      {"test_accuracy_high_percent", "high", false, "order statistics over the repeats, 95 %",
       "/epoch/test_accuracy"},
      {"remark", "remark", true},
      group_name_column()};
}

double learning_rate(const Run& run) {
  try {
    return parse_number(run.reader->option("lr"));
  } catch (const Error&) {
    return kNotMeasured;
  }
}

std::string remark(const RunGroup& group, const AtEpoch& at) {
  std::string text;
  if (at.epoch == 0) text = "did not reach the epoch";
  if (!at.whole) text = "epoch cut off by --iterations";
  const std::int64_t images = training_images(group.first());
  if (is_full_batch(group.first().batch_global, images))
    text += fmt::format("{}full batch: one step over all {} images, as any larger batch",
                        text.empty() ? "" : "; ", images);
  return text;
}

std::vector<Cell> row(const RunGroup& group, const RunGroup& reference, const AtEpoch& at) {
  const Run& run = group.first();
  const Estimate test = median_estimate(at.test_percent);
  return {run.mode,
          run.model,
          known_count(run.ranks),
          known_count(run.batch_per_rank),
          known_count(run.batch_global),
          Cell::of(learning_rate(run), 4),
          remedy_text(group, reference),
          repeats_cell(group),
          known_count(at.epoch),
          Cell::of(median(at.train_loss), 4),
          Cell::of(median(at.train_percent), 2),
          Cell::of(median(at.test_loss), 4),
          Cell::of(test.value, 2),
          Cell::of(test.low, 2),
          Cell::of(test.high, 2),
          remark(group, at),
          group_name_cell(group)};
}

std::vector<std::string> notes(const TableOptions& options) {
  return {
      options.at_epoch > 0
          ? fmt::format("at the end of epoch {} (--at-epoch)", options.at_epoch)
          : std::string("at the end of the last epoch that all repeats have (--at-epoch "
                        "chooses another)"),
      "remedy: options that are meant to keep accuracy at a large batch, where they are on, and "
      "the learning rate where it differs from that of the model's smallest batch; \"none\": "
      "plain training. Accumulation reaches a large batch without more ranks",
      "loss and accuracy: mean over ranks, median of the repeats; low, high: 95 % interval from "
      "order statistics, n/a below 6 repeats"};
}

}  // namespace

Table make_large_batch_table(const RunSet& set, const TableOptions& options) {
  const auto groups = group_runs(set);
  Table table{"large-batch", "Accuracy at large batch", notes(options), columns(), {}};
  for (const RunGroup& group : groups)
    table.add(row(group, smallest_batch(groups, group), figures_at(group, options.at_epoch)),
              sources_of(group));
  const auto remarks = remark_notes(set);
  table.notes.insert(table.notes.end(), remarks.begin(), remarks.end());
  return table;
}

}  // namespace gradsync
