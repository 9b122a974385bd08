#include "analysis/model/measured_cell.h"

#include <algorithm>
#include <array>
#include <functional>

#include <fmt/format.h>

#include "analysis/metrics/columns.h"
#include "analysis/metrics/oversubscription.h"
#include "analysis/metrics/split_figures.h"
#include "timing/statistics.h"

namespace gradsync::report {

namespace {

/// Options that change the law of a family, beside model and mode.
constexpr std::array<std::string_view, 9> kFamilyOptions = {
    "granularity", "first-bucket", "bucket-cap", "wire-dtype", "overlap",
    "accumulate",  "precision",    "threads",    "layout"};

std::string family_of(const Run& run) {
  std::string key = run.model + ", " + run.mode;
  for (const std::string_view option : kFamilyOptions)
    key += fmt::format("|{}", run.reader->option(option));
  return key;
}

std::vector<double> stalled(const RunGroup& group, const std::vector<double>& exposed_s) {
  if (!waits_apart(*group.first().reader)) return exposed_s;
  std::vector<double> sums_s = steady_rank_means(group, Phase::kWait);
  std::transform(sums_s.begin(), sums_s.end(), exposed_s.begin(), sums_s.begin(), std::plus<>());
  return sums_s;
}

MeasuredCell measured_cell(const RunGroup& group) {
  MeasuredCell cell{group, family_of(group.first()), {}, {}, {}, {}};
  cell.iteration_s = steady_values(group, Phase::kIteration);
  cell.compute_s = steady_rank_means(group, Phase::kCompute);
  cell.exposed_s = steady_rank_means(group, Phase::kExposed);
  cell.stalled_s = stalled(group, cell.exposed_s);
  cell.median_iteration_s = median(cell.iteration_s);
  cell.median_compute_s = median(cell.compute_s);
  cell.median_exposed_s = median(cell.exposed_s);
  cell.oversubscribed = std::any_of(group.repeats.begin(), group.repeats.end(), [](const Run* run) {
    return oversubscription(run->reader->info().topology).has_value();
  });
  if (cell.oversubscribed) cell.family += "|oversubscribed";
  return cell;
}

}  // namespace

bool is_steady(const Run& run, std::size_t row) {
  return run.steady.keeps(row);
}

std::vector<double> steady_rank_means(const RunGroup& group, Phase phase) {
  std::vector<double> values;
  for (const Run* run : group.repeats) {
    const std::vector<double> means = mean_over_ranks(run->reader->time(phase));
    for (std::size_t row = 0; row < means.size(); ++row)
      if (is_steady(*run, row)) values.push_back(means[row]);
  }
  return values;
}

std::vector<MeasuredCell> measured_cells(const RunSet& set) {
  std::vector<MeasuredCell> cells;
  for (const RunGroup& group : group_runs(set))
    cells.push_back(measured_cell(group));
  return cells;
}

std::string ranks_text(std::int64_t ranks) {
  return fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s");
}

std::string cell_text(const MeasuredCell& cell) {
  return fmt::format("{}, {}, {}, {} images per rank", cell.run().model, cell.run().mode,
                     ranks_text(cell.ranks()), cell.batch_per_rank());
}

}  // namespace gradsync::report
