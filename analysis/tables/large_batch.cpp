#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "analysis/figures/epoch_figures.h"
#include "analysis/figures/remedy.h"
#include "analysis/tables/group_cells.h"
#include "analysis/tables/run_cells.h"
#include "analysis/tables/tables.h"
#include "base/error.h"
#include "base/parse.h"
#include "stats/estimate.h"

namespace gradsync::report {

namespace {

/// The epoch that published studies of large batches name.
constexpr std::int64_t kEarlyEpoch = 5;
/// Behind the remedy.
constexpr std::ptrdiff_t kSettingsAt = 7;

/// Options in which groups differ and that no other column shows.
std::vector<std::string> further_options(const std::vector<const RunGroup*>& groups) {
  auto options = differing_options(groups);
  std::erase_if(options, is_remedy_option);
  return options;
}

std::vector<Column> large_batch_columns(bool with_settings) {
  const std::string over = "mean over ranks of the epoch; mean of the repeats";
  const std::string student = "Student's t over the repeats, 95 %";
  const std::string welch = "Welch's t over the repeats, 95 %: half the interval";
  const std::string test = "/epoch/test_accuracy";
  std::vector<Column> all = cell_columns();
  all.back().detail = 1;  // the global batch is what the table is about
  const std::vector<Column> further = {
      {"learning_rate", "lr", false, "as configured", "/config/lr"},
      {"remedy", "remedy", true, "", "", 0},
      repeats_column(),
      {"epoch", "epoch", false, "--at-epoch, else the 5th and the last that all repeats have",
       "/epoch/number"},
      {"train_loss", "train loss", false, over, "/epoch/train_loss"},
      {"train_accuracy_percent", "train %", false, over, "/epoch/train_accuracy"},
      {"test_loss", "test loss", false, over, "/epoch/test_loss"},
      {"test_accuracy_percent", "test %", false, over, test},
      {"test_accuracy_low_percent", "low", false, student, test},
      {"test_accuracy_high_percent", "high", false, student, test},
      {"fall_points", "to base", false, "test % - test % of the smallest batch", test},
      {"fall_reach_points", "±", false, welch, test},
      {"repair_points", "to none", false, "test % - test % of the same batch without remedy", test},
      {"repair_reach_points", "±", false, welch, test},
      {"remark", "remark", true, "", "", 2},
      group_name_column()};
  all.insert(all.end(), further.begin(), further.end());
  if (with_settings) all.insert(all.begin() + kSettingsAt, {"settings", "settings", true});
  keep(all, {"epoch", "test_accuracy_percent", "fall_points", "repair_points"});
  return all;
}

double learning_rate(const Run& run) {
  try {
    return parse_number(run.reader->option("lr"));
  } catch (const Error&) {
    return kNotMeasured;
  }
}

/// "base: set-epoch=true": in what else the group is not like what it is compared with.
std::string unlike(const char* what, const RunGroup& group, const RunGroup* other) {
  if (other == nullptr || other == &group) return {};
  const auto options = further_options({&group, other});
  return options.empty() ? "" : fmt::format("{}: {}", what, settings_text(other->first(), options));
}

std::string large_batch_remark(const RunGroup& group, const AccuracyAt& at) {
  std::string text;
  if (at.epoch == 0) text = "did not reach the epoch";
  if (!at.whole) text = "epoch cut off by --iterations";
  const std::int64_t images = training_images(group.first());
  if (is_full_batch(group.first().batch_global, images))
    text += fmt::format("{}full batch: one step over all {} images, as any larger batch",
                        text.empty() ? "" : "; ", images);
  return text;
}

/// The rows of a table at one epoch.
class RowsAt {
 public:
  /// `epoch` 0: the last of each group.
  RowsAt(const std::vector<RunGroup>& groups, std::int64_t epoch)
      : groups_(groups), settings_(further_options(pointers_to(groups))), epoch_(epoch) {}

  std::vector<Cell> row(const RunGroup& group) const {
    const RunGroup& base = smallest_batch(groups_, group);
    const RunGroup* plain = plain_group(groups_, group, base);
    const AccuracyAt at = of(group);
    const Estimate test = mean_estimate(at.test_percent);
    const Run& run = group.first();
    std::vector<Cell> cells = {run.mode,
                               run.model,
                               known_count(run.ranks),
                               known_count(run.batch_per_rank),
                               known_count(largest_batch(run)),
                               Cell::of(learning_rate(run), 4),
                               remedy_text(group, base),
                               repeats_cell(group),
                               known_count(at.epoch),
                               Cell::of(mean(at.train_loss), 4),
                               Cell::of(mean(at.train_percent), 2),
                               Cell::of(mean(at.test_loss), 4),
                               Cell::of(test.value, 2),
                               Cell::of(test.low, 2),
                               Cell::of(test.high, 2)};
    add_difference(cells, at, &base == &group ? nullptr : &base);
    add_difference(cells, at, plain == &group ? nullptr : plain);
    std::string text = large_batch_remark(group, at);
    for (const std::string& more : {unlike("base", group, &base), unlike("none", group, plain)})
      if (!more.empty()) text += (text.empty() ? "" : "; ") + more;
    cells.emplace_back(text);
    cells.push_back(group_name_cell(group));
    if (!settings_.empty())
      cells.insert(cells.begin() + kSettingsAt, settings_text(group.first(), settings_));
    return cells;
  }

 private:
  AccuracyAt of(const RunGroup& group) const {
    return accuracy_at(group, epoch_ > 0 ? epoch_ : last_common_epoch(group));
  }

  void add_difference(std::vector<Cell>& cells, const AccuracyAt& at, const RunGroup* to) const {
    Estimate change;
    if (to != nullptr) change = difference_estimate(at.test_percent, of(*to).test_percent);
    cells.push_back(Cell::of(change.value, 2));
    cells.push_back(Cell::of((change.high - change.low) / 2, 2));
  }

  const std::vector<RunGroup>& groups_;
  std::vector<std::string> settings_;
  std::int64_t epoch_;
};

/// One epoch if it is asked for; else the last, and the early one before it where runs continue.
std::vector<std::int64_t> epochs_of(const std::vector<RunGroup>& groups,
                                    const TableOptions& options) {
  if (options.at_epoch > 0) return {options.at_epoch};
  const bool go_on = std::any_of(groups.begin(), groups.end(), [](const RunGroup& group) {
    return last_common_epoch(group) > kEarlyEpoch;
  });
  return go_on ? std::vector<std::int64_t>{kEarlyEpoch, 0} : std::vector<std::int64_t>{0};
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
  Table table{"large-batch",
              "Accuracy at large batch",
              large_batch_notes(options),
              large_batch_columns(!further_options(pointers_to(groups)).empty()),
              {}};
  for (const std::int64_t epoch : epochs_of(groups, options)) {
    const RowsAt rows(groups, epoch);
    for (const RunGroup& group : groups)
      table.add(rows.row(group), sources_of(group));
  }
  return table;
}

}  // namespace gradsync::report
