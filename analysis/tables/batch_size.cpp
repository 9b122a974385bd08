// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "analysis/figures/epoch_figures.h"
#include "analysis/tables/columns.h"
#include "analysis/tables/tables.h"
#include "base/parse.h"
#include "options/modes.h"
#include "stats/bandwidth.h"
#include "stats/estimate.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

constexpr std::size_t kMostEpochs = 10;

/// An epoch of a cell, or the mean over its later epochs.
struct EpochLine : CellRow {
  std::string source = {}, epoch = "-", remark = {};
  double iterations = kNotMeasured, images_per_s = kNotMeasured;
  EpochFigures figures = {};
  bool of_one_epoch = true;  ///< false: a mean, which has no loss, accuracy and memory

  Cell of_epoch(const Cell& cell) const { return of_one_epoch ? cell : Cell("-"); }
  auto place() const { return std::tuple(model, ranks, mode_position(mode), mode, batch_global); }
};

TableColumns<EpochLine> epoch_line_columns(const GroupLabels& labels) {
  using Row = EpochLine;
  const std::string over = "mean over ranks; median of the repeats";
  TableColumns<Row> columns = labels.columns();
  columns.add(repeats_column());
  columns.add(
      {{"epoch", "epoch", kLabel, &Row::epoch, 0},
       {"iterations", "iterations", "iterations of the epoch", "/epoch/iterations",
        [](const Row& row) { return Cell::count(row.iterations); }},
       {"training_s", "training s",
        "slowest rank's iterations of the epoch without waiting for data; median of the repeats",
        "/epoch/training_time",
        [](const Row& row) { return significant_cell(row.figures.training_s); }, 0},
       {"running_s", "running s",
        "slowest rank's wall time of the epoch without evaluation; median of the repeats",
        "/epoch/running_time",
        [](const Row& row) { return significant_cell(row.figures.running_s); }},
       {"extrapolated_s", "whole epoch, extrapolated s",
        "mean iteration that is not warm-up, slowest rank, x iterations of a whole epoch; only of "
        "an epoch that was cut off",
        "/time/iteration",
        [](const Row& row) { return significant_cell(row.figures.extrapolated_s); }},
       {"images_per_s", "images/s", "images of the epoch / running time",
        "/iteration/samples, /epoch/running_time",
        [](const Row& row) { return Cell::of(row.images_per_s, 1); }, 0},
       {"train_loss", "train loss", over, "/epoch/train_loss",
        [](const Row& row) { return row.of_epoch(Cell::of(row.figures.train_loss, 4)); }},
       {"train_accuracy_percent", "train %", over, "/epoch/train_accuracy",
        [](const Row& row) { return row.of_epoch(percent_cell(row.figures.train_accuracy, 2)); }},
       {"test_loss", "test loss", over, "/epoch/test_loss",
        [](const Row& row) { return row.of_epoch(Cell::of(row.figures.test_loss, 4)); }},
       {"test_accuracy_percent", "test %", over, "/epoch/test_accuracy",
        [](const Row& row) { return row.of_epoch(percent_cell(row.figures.test_accuracy, 2)); }, 0},
       {"peak_memory_mib", "memory MiB",
        "largest over ranks / 2^20 bytes; median of the repeats; n/a for contenders of one job, "
        "which share the process",
        "/epoch/peak_memory",
        [](const Row& row) {
          return row.of_epoch(Cell::of(row.figures.peak_memory_bytes / kMiB, 1));
        }},
       {"remark", "remark", &Row::remark, 2}});
  return columns.add(name_column());
}

using Repeats = std::vector<std::vector<EpochFigures>>;

/// The epoch at `position` of each repeat that has it; the whole ones alone where there are any.
std::vector<EpochFigures> epochs_at(const Repeats& repeats, std::size_t position) {
  std::vector<EpochFigures> all;
  for (const auto& epochs : repeats)
    if (position < epochs.size()) all.push_back(epochs[position]);
  if (std::ranges::any_of(all, &EpochFigures::whole))
    std::erase_if(all, [](const EpochFigures& one) { return !one.whole; });
  return all;
}

/// The median over the repeats of one figure of the epoch at `position`.
template <typename Figure>
double over_repeats(const Repeats& repeats, std::size_t position, Figure figure) {
  return median(each(epochs_at(repeats, position), figure));
}

/// The mean over the later whole epochs, the first left out, of the medians over the repeats.
template <typename Figure>
double over_later_epochs(const Repeats& repeats, std::size_t epochs, Figure figure) {
  std::vector<double> values;
  for (std::size_t e = 1; e < epochs; ++e)
    values.push_back(over_repeats(repeats, e, [&](const EpochFigures& one) {
      return one.whole ? figure(one) : kNotMeasured;
    }));
  return mean(values);
}

/// `over` gives the value of a line for a figure of an epoch.
template <typename Over>
void fill_in_times(EpochLine& line, Over over) {
  line.iterations = over([](const auto& one) { return static_cast<double>(one.iterations); });
  line.figures.training_s = over([](const auto& one) { return one.training_s; });
  line.figures.running_s = over([](const auto& one) { return one.running_s; });
  line.images_per_s = over([](const auto& one) { return one.images_per_s(); });
}

void fill_in_epoch(EpochLine& line, const Repeats& repeats, std::size_t epoch) {
  fill_in_times(line, [&](auto figure) { return over_repeats(repeats, epoch, figure); });
  for (double EpochFigures::*one :
       {&EpochFigures::extrapolated_s, &EpochFigures::train_loss, &EpochFigures::train_accuracy,
        &EpochFigures::test_loss, &EpochFigures::test_accuracy, &EpochFigures::peak_memory_bytes})
    line.figures.*one =
        over_repeats(repeats, epoch, [one](const EpochFigures& of) { return of.*one; });
}

std::string epoch_remark(const Run& run, const EpochFigures& epoch) {
  const std::int64_t images = training_images(run);
  return remark_of(
      {epoch.epoch == 0 ? "first epoch: warm-up" : "",
       epoch.whole ? ""
                   : fmt::format("cut off: time of {} of {} iterations", epoch.iterations,
                                 epoch.whole_iterations > 0 ? std::to_string(epoch.whole_iterations)
                                                            : "an unknown number of"),
       is_full_batch(run.batch_global, images)
           ? fmt::format("full batch: one step over all {} images, as any larger batch", images)
           : "",
       run.reader->status() != RunStatus::kComplete ? "run " + run.status() : ""});
}

/// The first, the last and evenly spaced ones between, at most kMostEpochs.
std::set<std::size_t> shown_epochs(std::size_t epochs) {
  std::set<std::size_t> shown;
  const std::size_t count = std::min(epochs, kMostEpochs);
  for (std::size_t i = 0; i < count; ++i)
    shown.insert(count == 1 ? 0 : i * (epochs - 1) / (count - 1));
  return shown;
}

void add_lines(const RunGroup& group, const GroupLabels& labels, std::vector<EpochLine>& lines) {
  Repeats repeats;
  for (const Run* run : group.repeats)
    repeats.push_back(epoch_figures(*run));
  const std::size_t epochs =
      std::ranges::max(each(repeats, [](const auto& one) { return one.size(); }));
  const EpochLine empty{labels.row(group), sources_of(group)};
  for (const std::size_t e : shown_epochs(epochs)) {
    EpochLine& line = lines.emplace_back(empty);
    line.epoch = std::to_string(e + 1);
    line.remark = epoch_remark(group.first(), epochs_at(repeats, e).front());
    fill_in_epoch(line, repeats, e);
  }
  if (epochs == 0)
    lines.emplace_back(empty).remark =
        fmt::format("run {}: no epoch ended", group.first().status());
  std::size_t last = 0, later = 0;  // of whole epochs
  for (std::size_t e = 1; e < epochs; ++e)
    if (std::ranges::any_of(
            repeats, [e](const auto& of_run) { return e < of_run.size() && of_run[e].whole; }))
      last = e + 1, ++later;
  if (later < 2 || !batch_schedule(group.first()).empty()) return;
  EpochLine& line = lines.emplace_back(empty);
  line.epoch = fmt::format("mean 2-{}", last);
  line.remark = "without the first, " + count_text(later, "epoch");
  line.of_one_epoch = false;
  fill_in_times(line, [&](auto figure) { return over_later_epochs(repeats, epochs, figure); });
}

}  // namespace

Table make_batch_size_table(const RunSet& set, const TableOptions&) {
  const auto groups = group_runs(set);
  const GroupLabels labels(groups);
  const auto columns = epoch_line_columns(labels);
  Table table = columns.table(
      "batch-size", "Batch size against epoch time",
      {"one row per epoch, counted from 1; the first includes warm-up (page cache, first "
       "iterations, memory that grows) and is kept apart from \"mean 2-N\"",
       "training s: iterations without waiting for data; running s: wall time of the epoch without "
       "evaluation; both of the slowest rank, nothing scaled",
       "an epoch that --iterations cut off shows the time of the iterations it had; \"whole epoch, "
       "extrapolated\" is its mean iteration that is not warm-up x the iterations of a whole epoch",
       "images/s: images of the global batches / running time; loss and accuracy: mean over ranks; "
       "memory: largest over ranks, highest so far (resident set on a CPU, device memory on a "
       "GPU), MiB = 2^20 bytes",
       "runs: repeats, of which each figure is the median, without those that were cut off in an "
       "epoch where another was not; at most 10 epochs a run are shown"});
  std::vector<EpochLine> lines;
  for (const RunGroup& group : groups)
    add_lines(group, labels, lines);
  for (const FailedCell& failed : set.failed)
    lines.push_back({labels.row(failed), failed.path.string(), "-", failed.verdict()});
  // How a batch failed is said by its remark alone.
  if (!set.failed.empty()) keep(table.columns, {"batch_per_rank", "remark"});
  std::ranges::stable_sort(lines, {}, &EpochLine::place);
  for (const EpochLine& line : lines)
    table.add(columns.cells(line), line.source);
  return table;
}

namespace {

/// What a run took up to the end of the first epoch whose test accuracy is the target or more.
struct Reached {
  double epochs = 0, time_s = 0, images = 0;
};

struct TargetRow : CellRow {
  double target_percent = 0;
  std::vector<double> epochs = {};
  Estimate time_s = {}, images = {};
};

TableColumns<TargetRow> target_columns(const GroupLabels& labels) {
  using Row = TargetRow;
  const char* student = "Student's t over the repeats, 95 %";
  const std::string time = "/epoch/running_time, /epoch/test_accuracy";
  const std::string images = "/iteration/samples, /epoch/test_accuracy";
  TableColumns<Row> columns = labels.columns();
  columns.add({{"target_percent", "target %", "--target-accuracy", "/config/target-accuracy",
                [](const Row& row) { return Cell::of(row.target_percent, 2); }, 0}});
  columns.add(repeats_column());
  columns.add(
      {{"reached", "reached", "repeats that reached the target", "/epoch/test_accuracy",
        [](const Row& row) { return count_cell(row.epochs.size()); }, 0},
       {"epochs", "epochs", "mean of the repeats that reached it", "/epoch/test_accuracy",
        [](const Row& row) { return Cell::of(mean(row.epochs), 1); }},
       {"time_s", "time s", "sum of the running times of these epochs; mean", time, Ends{student},
        [](const Row& row, End end) { return significant_cell(row.time_s.*end); }, 0},
       {"images", "images", "sum of the global batches of these epochs; mean", images,
        Ends{student}, [](const Row& row, End end) { return Cell::count(row.images.*end); }, 0}});
  return columns.add(name_column());
}

double target_percent(const Run& run, const TableOptions& options) {
  if (options.target_percent > 0) return options.target_percent;
  return parsed_or(parse_number, option_value(run, "target-accuracy"), 0.0);
}

std::optional<Reached> reached(const Run& run, double percent) {
  constexpr double kRounding = 1e-9;  // of a mean over ranks
  Reached sum;
  for (const EpochFigures& epoch : epoch_figures(run)) {
    ++sum.epochs;
    sum.time_s += epoch.running_s;
    sum.images += epoch.samples;
    if (1e2 * epoch.test_accuracy >= percent - kRounding) return sum;
  }
  return {};
}

TargetRow target_row(const GroupLabels& labels, const RunGroup& group, double percent) {
  TargetRow row{labels.row(group), percent};
  std::vector<double> time_s, images;
  for (const Run* run : group.repeats)
    if (const auto one = reached(*run, percent)) {
      row.epochs.push_back(one->epochs);
      time_s.push_back(one->time_s);
      images.push_back(one->images);
    }
  row.time_s = mean_estimate(time_s);
  row.images = mean_estimate(images);
  return row;
}

}  // namespace

bool has_target_accuracy(const RunSet& set, const TableOptions& options) {
  return std::ranges::any_of(set.runs,
                             [&](const Run& run) { return target_percent(run, options) > 0; });
}

Table make_time_to_accuracy_table(const RunSet& set, const TableOptions& options) {
  const auto groups = group_runs(set);
  const GroupLabels labels(groups);
  const auto columns = target_columns(labels);
  Table table = columns.table(
      "time-to-accuracy", "Time to accuracy",
      {"time, images: up to the end of the first epoch whose test accuracy, mean over "
       "ranks, is the target (--target-accuracy) or more; running time of the slowest "
       "rank, without evaluation",
       "mean of the repeats that reached it; low, high: 95 % interval of Student's t over "
       "them, n/a for one repeat. Where reached is less than runs, the mean leaves out the "
       "slowest: compare only cells that all repeats reach"});
  for (const RunGroup& group : groups)
    if (const double percent = target_percent(group.first(), options); percent > 0)
      table.add(columns.cells(target_row(labels, group, percent)), sources_of(group));
  return table;
}

}  // namespace gradsync::report
