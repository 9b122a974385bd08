#include <algorithm>
#include <cmath>
#include <tuple>

#include <fmt/format.h>

#include "analysis/figures/comparisons.h"
#include "analysis/figures/run_spread.h"
#include "analysis/figures/split_figures.h"
#include "analysis/tables/group_cells.h"
#include "analysis/tables/run_cells.h"
#include "analysis/tables/tables.h"
#include "options/modes.h"

namespace gradsync::report {

namespace {

constexpr const char* kTimes = "/time/iteration";

struct SummaryRow {
  const RunGroup* group;
  Estimate iteration_s;
  std::vector<double> times_s;
};

bool exchanged(const SummaryRow& row) {
  return row.group->first().ranks > 1 && mode_named(row.group->first().mode).exchanges;
}

/// Model, ranks and batches: only modes with the same work are compared. What is unknown equals
/// nothing.
auto work_of(const SummaryRow& row) {
  const Run& run = row.group->first();
  return std::tuple(run.model, run.ranks, run.batch_per_rank, run.batch_global, batch_schedule(run),
                    is_known_work(run) ? "" : run.path.string());
}

/// Whether its time says how the mode compares.
bool contends(const SummaryRow& row) {
  return exchanged(row) && core_shortage(*row.group).empty();
}

/// The fastest with the same work that contends; null for rows that do not.
const SummaryRow* fastest(const SummaryRow& row, const std::vector<SummaryRow>& rows) {
  const SummaryRow* best = nullptr;
  for (const SummaryRow& other : rows)
    if (contends(row) && contends(other) && work_of(row) == work_of(other) &&
        std::isfinite(other.iteration_s.value) &&
        (best == nullptr || other.iteration_s.value < best->iteration_s.value))
      best = &other;
  return best;
}

std::vector<SummaryRow> summary_rows(const std::vector<RunGroup>& groups) {
  std::vector<SummaryRow> rows;
  for (const RunGroup& group : groups) {
    auto times = steady_values(group, Phase::kIteration);
    const Estimate middle = median_estimate(times);
    rows.push_back({&group, middle, std::move(times)});
  }
  std::stable_sort(rows.begin(), rows.end(), [](const SummaryRow& a, const SummaryRow& b) {
    return work_of(a) < work_of(b);
  });
  return rows;
}

/// T(base)/T(n) over ranks, by the base that a reader means: one rank without exchange if there is
/// one, else the mode's own fewest ranks.
const Comparison* base_of(const RunGroup& group, const std::vector<Comparison>& all) {
  const Comparison* best = nullptr;
  for (const Comparison& one : all) {
    if (one.group != &group || one.itself()) continue;
    if (best == nullptr || !mode_named(one.base->first().mode).exchanges) best = &one;
  }
  return best;
}

double efficiency_percent(const SummaryRow& row, const std::vector<Comparison>& all) {
  const Comparison* one = base_of(*row.group, all);
  if (one == nullptr || row.group->first().ranks == 1 || !core_shortage(*row.group).empty() ||
      !core_shortage(*one->base).empty())
    return kNotMeasured;
  const double ratio = median(steady_values(*one->base, Phase::kIteration)) / row.iteration_s.value;
  if (one->scaling == Scaling::kWeak) return 1e2 * ratio;
  return 1e2 * ratio * static_cast<double>(one->base->first().ranks) /
         static_cast<double>(row.group->first().ranks);
}

/// What the ratios to the fastest leave open, since their intervals are over iterations, not runs.
std::string ratio_reservation(const std::vector<SummaryRow>& rows, const RunSpreads& spreads) {
  double factor = 1;
  bool compared = false, known = true;
  for (const SummaryRow& row : rows) {
    const SummaryRow* best = fastest(row, rows);
    if (best == nullptr || best == &row) continue;
    const RunSpread& spread = spreads.at(row.group->first().model);
    compared = true;
    known = known && spread.known();
    if (spread.known()) factor = std::max(factor, spread.factor);
  }
  if (!compared) return "ratio of medians";
  return known ? fmt::format("runs differ by up to {:.1f} %", 1e2 * (factor - 1))
               : "single runs, not tested";
}

std::vector<std::string> summary_notes(const std::string& reservation, bool super_linear) {
  std::vector<std::string> notes = {
      "iteration: median, slowest rank [95 %]; to fastest: " + reservation,
      "batch: per rank; exposed: compute waits for it; efficiency: against one rank"};
  if (super_linear)
    notes.emplace_back("efficiency above 100 % is super-linear; table speedup has its interval");
  return notes;
}

constexpr const char* kComplete = "complete";

/// Of the first repeat that is not complete.
std::string status_of(const RunGroup& group) {
  for (const Run* run : group.repeats)
    if (run->status() != kComplete) return run->status();
  return kComplete;
}

bool all_complete(const std::vector<RunGroup>& groups) {
  return std::all_of(groups.begin(), groups.end(),
                     [](const RunGroup& group) { return status_of(group) == kComplete; });
}

/// Empty where there are several.
std::string only_model(const std::vector<RunGroup>& groups) {
  for (const RunGroup& group : groups)
    if (group.first().model != groups.front().first().model) return "";
  return groups.empty() ? "" : groups.front().first().model;
}

int label_detail(const std::string& column, bool one_model) {
  if (column == "model") return one_model ? 4 : 0;  // the title says it
  return column == "batch_global" ? 3 : column == "settings" ? 1 : 0;
}

std::vector<Column> summary_columns(const GroupLabels& labels, bool one_model, bool with_status) {
  std::vector<Column> result = labels.columns();
  for (Column& column : result) {
    column.detail = label_detail(column.name, one_model);
    if (column.name == "batch_per_rank") column.head = "batch";  // 80 characters in all
  }
  const std::vector<Column> rest = {
      {"iteration_median_ms", "iteration ms", false, "median over steady iterations, slowest rank",
       kTimes, 0},
      {"iteration_median_low_ms", "low", false, "lower end of its 95 % interval", kTimes},
      {"iteration_median_high_ms", "high", false, "upper end of its 95 % interval", kTimes},
      {"to_fastest", "to fastest", false,
       "median / median of the fastest mode with the same model, ranks and batches", kTimes, 0},
      {"to_fastest_low", "low", false, "lower end of its 95 % bootstrap interval", kTimes},
      {"to_fastest_high", "high", false, "upper end of its 95 % bootstrap interval", kTimes},
      {"exposed_percent", "exposed %", false, "mean exposed communication / mean iteration",
       "/time/exposed, /time/iteration", 0},
      {"compute_ms", "compute ms", false, "mean over steady iterations and ranks", "/time/compute",
       2},
      {"hidden_ms", "hidden ms", false, "communication overlapped with compute, mean",
       "/time/hidden", 2},
      {"exposed_ms", "exposed ms", false, "communication that compute waits for, mean",
       "/time/exposed", 2},
      {"wait_ms", "wait ms", false, "waiting for a late rank, mean", "/time/wait", 3},
      {"efficiency_percent", "efficiency %", false, "T(base)/T(n) x base/n; weak: T(base)/T(n)",
       kTimes, 1},
      {"iterations", "n", false, "steady iterations of all repeats", "/iteration/number", 3}};
  result.insert(result.end(), rest.begin(), rest.end());
  if (with_status) result.push_back({"status", "status", true, "", "", 0});
  return result;
}

SplitFigures split_of(const RunGroup& group) {
  std::vector<SplitFigures> runs;
  for (const Run* run : group.repeats)
    runs.push_back(mean_of(split_figures(*run->reader, run->steady)));
  return mean_of(runs);
}

std::vector<Cell> summary_cells(const SummaryRow& row, const SummaryRow* best, double efficiency,
                                std::uint64_t seed) {
  const double shown_ms = 1e3 * row.iteration_s.value;
  const int decimals = shown_ms >= 1000 ? 0 : shown_ms >= 100 ? 1 : shown_ms >= 10 ? 2 : 3;
  const auto ms = [&](double seconds) { return Cell::of(1e3 * seconds, decimals); };
  Estimate ratio{kNotMeasured, kNotMeasured, kNotMeasured, 0};
  if (best == &row && is_known_work(row.group->first())) ratio.value = 1;
  if (best != nullptr && best != &row) ratio = ratio_estimate(row.times_s, best->times_s, seed);
  const SplitFigures split = split_of(*row.group);
  return {ms(row.iteration_s.value),
          ms(row.iteration_s.low),
          ms(row.iteration_s.high),
          Cell::of(ratio.value, 2),
          Cell::of(ratio.low, 2),
          Cell::of(ratio.high, 2),
          Cell::of(split.percent(Phase::kExposed), 1),
          ms(split[Phase::kCompute]),
          ms(split[Phase::kHidden]),
          ms(split[Phase::kExposed]),
          ms(split.wait_s()),
          Cell::of(efficiency, 1),
          Cell::count(static_cast<double>(row.iteration_s.count))};
}

}  // namespace

Table make_summary_table(const RunSet& set, const TableOptions& options) {
  const auto groups = group_runs(set);
  const GroupLabels labels(groups);
  const auto rows = summary_rows(groups);
  const auto bases = comparisons(groups);
  const std::string model = only_model(groups);
  const bool with_status = !set.failed.empty() || !all_complete(groups);
  const bool super_linear = std::any_of(rows.begin(), rows.end(), [&](const SummaryRow& row) {
    return efficiency_percent(row, bases) > 100 * (1 + 1e-9);
  });
  Table table{"summary",
              "Synchronization cost" + (model.empty() ? "" : ", " + model),
              summary_notes(ratio_reservation(rows, run_spreads(groups)), super_linear),
              summary_columns(labels, !model.empty(), with_status),
              {}};
  add_waiting_note(set, table.notes);
  for (const SummaryRow& row : rows) {
    const SummaryRow* best = fastest(row, rows);
    std::vector<Cell> cells = labels.cells(*row.group);
    const auto figures = summary_cells(row, best, efficiency_percent(row, bases), options.seed);
    cells.insert(cells.end(), figures.begin(), figures.end());
    if (with_status) cells.emplace_back(status_of(*row.group));
    table.add(std::move(cells), sources_of(*row.group));
  }
  for (const FailedCell& failed : set.failed) {
    std::vector<Cell> cells = labels.cells(failed);
    cells.resize(table.columns.size() - 1, Cell::of(kNotMeasured, 0));
    cells.emplace_back(failed.verdict());
    table.add(std::move(cells), failed.path.string());
  }
  return table;
}

}  // namespace gradsync::report
