#include <algorithm>
#include <cmath>
#include <optional>

#include "analysis/figures/epoch_figures.h"
#include "analysis/tables/group_cells.h"
#include "analysis/tables/run_cells.h"
#include "analysis/tables/tables.h"
#include "base/error.h"
#include "base/parse.h"
#include "stats/estimate.h"

namespace gradsync::report {

namespace {

/// What a run took up to the end of the first epoch whose test accuracy is the target or more.
struct Reached {
  double epochs = 0, time_s = 0, images = 0;
};

double target_percent(const Run& run) {
  try {
    return parse_number(option_value(run, "target-accuracy"));
  } catch (const Error&) {
    return 0;
  }
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

std::vector<Column> time_to_accuracy_columns(const GroupLabels& labels) {
  std::vector<Column> result = labels.columns();
  const std::string student = "Student's t over the repeats, 95 %";
  const std::string time = "/epoch/running_time, /epoch/test_accuracy";
  const std::string images = "/iteration/samples, /epoch/test_accuracy";
  const std::vector<Column> rest = {
      {"target_percent", "target %", false, "--target-accuracy", "/config/target-accuracy"},
      repeats_column(),
      {"reached", "reached", false, "repeats that reached the target", "/epoch/test_accuracy"},
      {"epochs", "epochs", false, "mean of the repeats that reached it", "/epoch/test_accuracy"},
      {"time_s", "time s", false, "sum of the running times of these epochs; mean", time},
      {"time_low_s", "low", false, student, time},
      {"time_high_s", "high", false, student, time},
      {"images", "images", false, "sum of the global batches of these epochs; mean", images},
      {"images_low", "low", false, student, images},
      {"images_high", "high", false, student, images},
      group_name_column()};
  result.insert(result.end(), rest.begin(), rest.end());
  keep(result, {"target_percent", "reached", "time_s", "images"});
  return result;
}

std::vector<Cell> time_to_accuracy_row(const GroupLabels& labels, const RunGroup& group,
                                       double percent) {
  std::vector<double> epochs, time_s, images;
  for (const Run* run : group.repeats)
    if (const auto one = reached(*run, percent)) {
      epochs.push_back(one->epochs);
      time_s.push_back(one->time_s);
      images.push_back(one->images);
    }
  const Estimate time = mean_estimate(time_s), seen = mean_estimate(images);
  std::vector<Cell> cells = labels.cells(group);
  const std::vector<Cell> rest = {Cell::of(percent, 2),
                                  repeats_cell(group),
                                  Cell::count(static_cast<double>(time_s.size())),
                                  Cell::of(mean(epochs), 1),
                                  significant_cell(time.value),
                                  significant_cell(time.low),
                                  significant_cell(time.high),
                                  Cell::count(seen.value),
                                  Cell::count(seen.low),
                                  Cell::count(seen.high),
                                  group_name_cell(group)};
  cells.insert(cells.end(), rest.begin(), rest.end());
  return cells;
}

}  // namespace

bool has_target_accuracy(const RunSet& set, const TableOptions&) {
  return std::any_of(set.runs.begin(), set.runs.end(),
                     [](const Run& run) { return target_percent(run) > 0; });
}

Table make_time_to_accuracy_table(const RunSet& set, const TableOptions&) {
  const auto groups = group_runs(set);
  const GroupLabels labels(groups);
  Table table{"time-to-accuracy",
              "Time to accuracy",
              {"time, images: up to the end of the first epoch whose test accuracy, mean over "
               "ranks, is the target (--target-accuracy) or more; running time of the slowest "
               "rank, without evaluation",
               "mean of the repeats that reached it; low, high: 95 % interval of Student's t over "
               "them, n/a for one repeat. Where reached is less than runs, the mean leaves out the "
               "slowest: compare only cells that all repeats reach"},
              time_to_accuracy_columns(labels),
              {}};
  for (const RunGroup& group : groups)
    if (const double percent = target_percent(group.first()); percent > 0)
      table.add(time_to_accuracy_row(labels, group, percent), sources_of(group));
  return table;
}

}  // namespace gradsync::report
