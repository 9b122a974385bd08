#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "analysis/figures/epoch_figures.h"
#include "analysis/tables/group_cells.h"
#include "analysis/tables/run_cells.h"
#include "analysis/tables/tables.h"
#include "options/modes.h"
#include "stats/bandwidth.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

constexpr std::size_t kMostEpochs = 10;

/// A row and where it stands: by model, ranks, mode, batch.
struct Line {
  std::tuple<std::string, std::int64_t, std::size_t, std::string, std::int64_t> place;
  std::vector<Cell> cells;
  std::string source;
};

/// The recorded epochs of all repeats of a group.
using Repeats = std::vector<std::vector<EpochFigures>>;

std::vector<Column> batch_size_columns(const GroupLabels& labels) {
  std::vector<Column> result = labels.columns();
  const std::vector<Column> rest = {
      repeats_column(),
      {"epoch", "epoch", true},
      {"iterations", "iterations", false, "iterations of the epoch", "/epoch/iterations"},
      {"training_s", "training s", false,
       "slowest rank's iterations of the epoch without waiting for data; median of the repeats",
       "/epoch/training_time"},
      {"running_s", "running s", false,
       "slowest rank's wall time of the epoch without evaluation; median of the repeats",
       "/epoch/running_time"},
      {"extrapolated_s", "whole epoch, extrapolated s", false,
       "mean iteration that is not warm-up, slowest rank, x iterations of a whole epoch; only of "
       "an epoch that was cut off",
       "/time/iteration"},
      {"images_per_s", "images/s", false, "images of the epoch / running time",
       "/iteration/samples, /epoch/running_time"},
      {"train_loss", "train loss", false, "mean over ranks; median of the repeats",
       "/epoch/train_loss"},
      {"train_accuracy_percent", "train %", false, "mean over ranks; median of the repeats",
       "/epoch/train_accuracy"},
      {"test_loss", "test loss", false, "mean over ranks; median of the repeats",
       "/epoch/test_loss"},
      {"test_accuracy_percent", "test %", false, "mean over ranks; median of the repeats",
       "/epoch/test_accuracy"},
      {"peak_memory_mib", "memory MiB", false,
       "largest over ranks / 2^20 bytes; median of the repeats", "/epoch/peak_memory"},
      {"remark", "remark", true, "", "", 2},
      group_name_column()};
  result.insert(result.end(), rest.begin(), rest.end());
  keep(result, {"epoch", "training_s", "images_per_s", "test_accuracy_percent"});
  return result;
}

/// The median over the repeats of one figure of the epoch at `position`.
template <typename Figure>
double over_repeats(const Repeats& repeats, std::size_t position, Figure figure) {
  std::vector<double> values;
  for (const auto& epochs : repeats)
    if (position < epochs.size()) values.push_back(figure(epochs[position]));
  return median(values);
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

std::vector<Cell> time_cells(double iterations, double training_s, double running_s,
                             double extrapolated_s, double images_per_s) {
  return {Cell::count(iterations), significant_cell(training_s), significant_cell(running_s),
          significant_cell(extrapolated_s), Cell::of(images_per_s, 1)};
}

std::vector<Cell> epoch_cells(const Repeats& repeats, std::size_t e) {
  const auto of = [&](auto figure) { return over_repeats(repeats, e, figure); };
  std::vector<Cell> cells =
      time_cells(of([](const auto& one) { return static_cast<double>(one.iterations); }),
                 of([](const auto& one) { return one.training_s; }),
                 of([](const auto& one) { return one.running_s; }),
                 of([](const auto& one) { return one.extrapolated_s; }),
                 of([](const auto& one) { return one.images_per_s(); }));
  const std::vector<Cell> results = {
      Cell::of(of([](const auto& one) { return one.train_loss; }), 4),
      Cell::of(1e2 * of([](const auto& one) { return one.train_accuracy; }), 2),
      Cell::of(of([](const auto& one) { return one.test_loss; }), 4),
      Cell::of(1e2 * of([](const auto& one) { return one.test_accuracy; }), 2),
      Cell::of(of([](const auto& one) { return one.peak_memory_bytes; }) / kMiB, 1)};
  cells.insert(cells.end(), results.begin(), results.end());
  return cells;
}

std::vector<Cell> later_cells(const Repeats& repeats, std::size_t epochs) {
  const auto of = [&](auto figure) { return over_later_epochs(repeats, epochs, figure); };
  std::vector<Cell> cells =
      time_cells(of([](const auto& one) { return static_cast<double>(one.iterations); }),
                 of([](const auto& one) { return one.training_s; }),
                 of([](const auto& one) { return one.running_s; }), kNotMeasured,
                 of([](const auto& one) { return one.images_per_s(); }));
  cells.insert(cells.end(), 5, Cell("-"));  // they are of one epoch, not of a mean
  return cells;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts)
    text += (text.empty() ? "" : "; ") + part;
  return text;
}

std::string batch_size_remark(const Run& run, const EpochFigures& epoch) {
  std::vector<std::string> parts;
  if (epoch.epoch == 0) parts.emplace_back("first epoch: warm-up");
  if (!epoch.whole) {
    parts.push_back(fmt::format("cut off: time of {} of {} iterations", epoch.iterations,
                                epoch.whole_iterations > 0 ? std::to_string(epoch.whole_iterations)
                                                           : "an unknown number of"));
  }
  if (is_full_batch(run.batch_global, training_images(run)))
    parts.push_back(fmt::format("full batch: one step over all {} images, as any larger batch",
                                training_images(run)));
  if (run.reader->status() != RunStatus::kComplete) parts.push_back("run " + run.status());
  return joined(parts);
}

std::size_t most_epochs(const Repeats& repeats) {
  std::size_t most = 0;
  for (const auto& epochs : repeats)
    most = std::max(most, epochs.size());
  return most;
}

/// The first, the last and evenly spaced ones between, at most kMostEpochs.
std::set<std::size_t> shown_epochs(std::size_t epochs) {
  std::set<std::size_t> shown;
  const std::size_t count = std::min(epochs, kMostEpochs);
  for (std::size_t i = 0; i < count; ++i)
    shown.insert(count == 1 ? 0 : i * (epochs - 1) / (count - 1));
  return shown;
}

class Lines {
 public:
  explicit Lines(const GroupLabels& labels) : labels_(labels) {}

  void add_group(const RunGroup& group) {
    Repeats repeats;
    for (const Run* run : group.repeats)
      repeats.push_back(epoch_figures(*run));
    const std::size_t epochs = most_epochs(repeats);
    if (epochs == 0) add_unrecorded(group);
    for (const std::size_t e : shown_epochs(epochs))
      add(group, std::to_string(e + 1), epoch_cells(repeats, e),
          batch_size_remark(group.first(), longest(repeats)[e]));
    if (epochs > 2 && batch_schedule(group.first()).empty())
      add(group, fmt::format("mean 2-{}", epochs), later_cells(repeats, epochs),
          fmt::format("without the first, {} epochs", epochs - 1));
  }

  void add_failure(const FailedCell& failed) {
    std::vector<Cell> cells = labels_.cells(failed);
    cells.push_back(Cell::count(0));
    cells.emplace_back("-");
    cells.insert(cells.end(), 10, Cell::of(kNotMeasured, 0));
    cells.emplace_back(failed.verdict());
    cells.emplace_back(failed.cell);
    lines_.push_back(
        {{failed.model, failed.ranks, mode_position(failed.mode), failed.mode, failed.batch_global},
         std::move(cells),
         failed.path.string()});
  }

  void add_to(Table& table) {
    std::stable_sort(lines_.begin(), lines_.end(),
                     [](const Line& a, const Line& b) { return a.place < b.place; });
    for (Line& line : lines_)
      table.add(std::move(line.cells), std::move(line.source));
  }

 private:
  static const std::vector<EpochFigures>& longest(const Repeats& repeats) {
    return *std::max_element(repeats.begin(), repeats.end(),
                             [](const auto& a, const auto& b) { return a.size() < b.size(); });
  }

  void add_unrecorded(const RunGroup& group) {
    std::vector<Cell> none(10, Cell::of(kNotMeasured, 0));
    add(group, "-", std::move(none), fmt::format("run {}: no epoch ended", group.first().status()));
  }

  void add(const RunGroup& group, const std::string& epoch, std::vector<Cell> figures,
           const std::string& text) {
    std::vector<Cell> cells = labels_.cells(group);
    cells.push_back(repeats_cell(group));
    cells.emplace_back(epoch);
    cells.insert(cells.end(), figures.begin(), figures.end());
    cells.emplace_back(text);
    cells.push_back(group_name_cell(group));
    const Run& run = group.first();
    lines_.push_back({{run.model, run.ranks, mode_position(run.mode), run.mode, run.batch_global},
                      std::move(cells),
                      sources_of(group)});
  }

  const GroupLabels& labels_;
  std::vector<Line> lines_;
};

std::vector<std::string> batch_size_notes() {
  return {
      "one row per epoch, counted from 1; the first includes warm-up (page cache, first "
      "iterations, memory that grows) and is kept apart from \"mean 2-N\"",
      "training s: iterations without waiting for data; running s: wall time of the epoch without "
      "evaluation; both of the slowest rank, nothing scaled",
      "an epoch that --iterations cut off shows the time of the iterations it had; \"whole epoch, "
      "extrapolated\" is its mean iteration that is not warm-up x the iterations of a whole epoch",
      "images/s: images of the global batches / running time; loss and accuracy: mean over ranks; "
      "memory: largest over ranks, highest so far (resident set on a CPU, device memory on a GPU), "
      "MiB = 2^20 bytes",
      "runs: repeats, of which each figure is the median; at most 10 epochs a run are shown"};
}

}  // namespace

Table make_batch_size_table(const RunSet& set, const TableOptions&) {
  const auto groups = group_runs(set);
  const GroupLabels labels(groups);
  Table table{"batch-size",
              "Batch size against epoch time",
              batch_size_notes(),
              batch_size_columns(labels),
              {}};
  Lines lines(labels);
  for (const RunGroup& group : groups)
    lines.add_group(group);
  for (const FailedCell& failed : set.failed)
    lines.add_failure(failed);
  // How a batch failed is said by its remark alone.
  if (!set.failed.empty()) keep(table.columns, {"batch_per_rank", "remark"});
  lines.add_to(table);
  return table;
}

}  // namespace gradsync::report
