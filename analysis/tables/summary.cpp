// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <tuple>

#include <fmt/format.h>

#include "analysis/figures/comparisons.h"
#include "analysis/figures/rank_figures.h"
#include "analysis/tables/columns.h"
#include "analysis/tables/tables.h"
#include "options/modes.h"

namespace gradsync::report {

namespace {

constexpr const char* kComplete = "complete";

/// What modes must have in common to be compared: model, ranks, batches, conditions_of.
using Work = std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t, std::string,
                        std::vector<std::string>, std::string>;

struct SummaryRow : CellRow {
  const RunGroup* group = nullptr;  ///< null for a cell that left no run
  Estimate iteration_s = {};
  Estimate to_fastest = {};
  SplitFigures split = {};
  double efficiency_percent = kNotMeasured;
  std::string status = {}, sources = {};
  bool contends = false;  ///< its time says how the mode compares
  Work work = {};

  Cell time(double time_s) const {
    const double shown_ms = 1e3 * iteration_s.value;
    return ms_cell(time_s, shown_ms >= 1000 ? 0 : shown_ms >= 100 ? 1 : shown_ms >= 10 ? 2 : 3);
  }
};

using SummaryRows = std::vector<SummaryRow>;

/// The cell's columns in 80 characters; the title names a model that is the only one.
TableColumns<CellRow> narrow_columns(const GroupLabels& labels, bool one_model) {
  TableColumns<CellRow> columns = labels.columns();
  for (RowColumn<CellRow>& one : columns) {
    Column& column = one.column;
    column.detail = column.name == "batch_global" ? 3 : column.name == "settings" ? 1 : 0;
    if (column.name == "model" && one_model) column.detail = 4;
    if (column.name == "batch_per_rank") column.head = "batch";
  }
  return columns;
}

TableColumns<SummaryRow> summary_columns(const GroupLabels& labels, bool one_model,
                                         bool with_status) {
  using Row = SummaryRow;
  const std::string times = "/time/iteration";
  TableColumns<Row> columns = narrow_columns(labels, one_model);
  columns.add(
      {{"iteration_median_ms", "iteration ms", "median over steady iterations, slowest rank", times,
        Ends{"{} end of its 95 % interval"},
        [](const Row& row, End end) { return row.time(row.iteration_s.*end); }, 0},
       {"to_fastest", "to fastest",
        "time / time of the fastest mode with the same model, ranks, batches, options of an "
        "iteration, devices and hosts",
        times, Ends{"{} end of its 95 % interval"},
        [](const Row& row, End end) { return Cell::of(row.to_fastest.*end, 2); }, 0},
       {"exposed_percent", "exposed %", "mean exposed communication / mean iteration",
        "/time/exposed, /time/iteration",
        [](const Row& row) { return Cell::of(row.split.percent(Phase::kExposed), 1); }, 0},
       {"compute_ms", "compute ms", "mean over steady iterations and ranks", "/time/compute",
        [](const Row& row) { return row.time(row.split[Phase::kCompute]); }, 2},
       {"hidden_ms", "hidden ms", "communication overlapped with compute, mean", "/time/hidden",
        [](const Row& row) { return row.time(row.split[Phase::kHidden]); }, 2},
       {"exposed_ms", "exposed ms", "communication that compute waits for, mean", "/time/exposed",
        [](const Row& row) { return row.time(row.split[Phase::kExposed]); }, 2},
       {"wait_ms", "wait ms", "waiting for a late rank, mean", "/time/wait",
        [](const Row& row) { return row.time(row.split.wait_s()); }, 3},
       {"efficiency_percent", "efficiency %", "T(base)/T(n) x base/n; weak: T(base)/T(n)", times,
        [](const Row& row) { return Cell::of(row.efficiency_percent, 1); }},
       {"iterations", "n", "steady iterations of all repeats, of local-sgd its periods",
        "/iteration/number",
        [](const Row& row) {
          return row.group ? count_cell(row.iteration_s.count) : Cell::count(kNotMeasured);
        },
        3}});
  if (with_status) columns.add({{"status", "status", &Row::status, 0}});
  return columns;
}

/// Only modes with the same work are compared. What is unknown equals nothing.
Work work_of(const Run& run) {
  using enum OptionRole;
  static const auto rest = options_of({kStep, kMachine});
  return {run.model,
          run.ranks,
          run.batch_per_rank,
          run.batch_global,
          batch_schedule(run),
          conditions_of(run, rest),
          is_known_work(run) ? "" : run.path.string()};
}

/// The fastest with the same work that contends, of those whose time has an interval if any has;
/// null for rows that do not contend.
const SummaryRow* fastest(const SummaryRow& row, const SummaryRows& rows) {
  const auto rank = [](const SummaryRow& one) {
    return std::pair(!one.iteration_s.has_interval(), one.iteration_s.value);
  };
  const SummaryRow* best = nullptr;
  for (const SummaryRow& other : rows)
    if (row.contends && other.contends && row.work == other.work &&
        std::isfinite(other.iteration_s.value) && (best == nullptr || rank(other) < rank(*best)))
      best = &other;
  return best;
}

/// T(base)/T(n) over ranks, by the base that a reader means (base_preference): one rank without
/// exchange if there is one, else the mode's own fewest ranks. An unfair one is none.
const Comparison* usual_base(const RunGroup& group, const std::vector<Comparison>& all) {
  const Comparison* best = nullptr;
  for (const Comparison& one : all) {
    if (one.group != &group || one.itself() || !is_fair(*one.group, *one.base)) continue;
    if (best == nullptr || base_preference(one) < base_preference(*best)) best = &one;
  }
  return best;
}

double efficiency_percent(const SummaryRow& row, const Comparison* one) {
  if (one == nullptr || row.ranks == 1 || !core_shortage(*row.group).empty() ||
      !core_shortage(*one->base).empty())
    return kNotMeasured;
  const double ratio = median(steady_values(*one->base, Phase::kIteration)) / row.iteration_s.value;
  if (one->scaling == Scaling::kWeak) return 1e2 * ratio;
  return 1e2 * ratio * static_cast<double>(one->base->first().ranks) /
         static_cast<double>(row.ranks);
}

std::string status_of(const RunGroup& group) {
  for (const Run* run : group.repeats)
    if (run->status() != kComplete) return run->status();
  return kComplete;
}

SummaryRows summary_rows(const std::vector<RunGroup>& groups, const GroupLabels& labels) {
  const auto bases = comparisons(groups);
  GroupSplits splits(groups);
  SummaryRows rows;
  for (const RunGroup& group : groups) {
    SummaryRow row{labels.row(group), &group,
                   median_estimate(steady_values(group, Phase::kIteration))};
    row.work = work_of(group.first());
    row.split = splits.measured(group);
    const Comparison* against = usual_base(group, bases);
    row.efficiency_percent = efficiency_percent(row, against);
    row.status = status_of(group);
    row.sources = sources_of(group);
    if (std::isfinite(row.efficiency_percent)) row.sources += ", " + sources_of(*against->base);
    row.contends = group.first().ranks > 1 && mode_named(group.first().mode).exchanges &&
                   is_recorded(group.first()) && core_shortage(group).empty();
    rows.push_back(std::move(row));
  }
  std::ranges::stable_sort(rows, {}, &SummaryRow::work);
  for (SummaryRow& row : rows) {
    const SummaryRow* best = fastest(row, rows);
    if (best == &row && is_known_work(row.group->first())) row.to_fastest.value = 1;
    if (best != nullptr && best != &row) {
      row.to_fastest = time_ratio(*row.group, *best->group).estimate();
      row.sources += ", " + sources_of(*best->group);
    }
  }
  return rows;
}

/// What the ratios to the fastest leave open where starts are not repeated.
std::string ratio_reservation(const SummaryRows& rows, const RunSpreads& spreads) {
  double factor = 1;
  bool compared = false, tested = true, known = true;
  for (const SummaryRow& row : rows) {
    const SummaryRow* best = fastest(row, rows);
    if (best == nullptr || best == &row) continue;
    compared = true;
    if (row.to_fastest.has_interval()) continue;
    const RunSpread& spread = spreads.at(row.model);
    tested = false;
    known = known && spread.known();
    if (spread.known()) factor = std::max(factor, spread.factor);
  }
  if (!compared) return "ratio of medians";
  if (tested) return "[95 %]";
  return known ? fmt::format("runs differ by up to {:.1f} %", 1e2 * (factor - 1))
               : "one start each, not tested";
}

std::vector<std::string> notes_of(const SummaryRows& rows, const RunSpreads& spreads) {
  std::vector<std::string> notes = {
      "iteration: median, slowest rank [95 %]; to fastest: " + ratio_reservation(rows, spreads),
      "batch: per rank; exposed: compute waits for it; efficiency: against one rank, else the "
      "mode's fewest"};
  if (std::ranges::any_of(
          rows, [](const SummaryRow& row) { return row.efficiency_percent > 100 * (1 + 1e-9); }))
    notes.emplace_back("efficiency above 100 % is super-linear; table speedup has its interval");
  return notes;
}

/// Empty where there are several.
std::string only_model(const RunSet& set) {
  std::set<std::string> models;
  for (const Run& run : set.runs)
    models.insert(run.model);
  for (const FailedCell& failed : set.failed)
    models.insert(failed.model);
  return models.size() == 1 ? *models.begin() : "";
}

}  // namespace

Table make_summary_table(const RunSet& set, const TableOptions&) {
  const auto groups = group_runs(set);
  const GroupLabels labels(groups);
  const SummaryRows rows = summary_rows(groups, labels);
  const std::string model = only_model(set);
  const bool with_status =
      !set.failed.empty() ||
      !std::ranges::all_of(rows, [](const SummaryRow& row) { return row.status == kComplete; });
  const auto columns = summary_columns(labels, !model.empty(), with_status);
  Table table =
      columns.table("summary", "Synchronization cost" + (model.empty() ? "" : ", " + model),
                    notes_of(rows, run_spreads(groups)));
  add_waiting_note(set, table.notes);
  for (const SummaryRow& row : rows)
    table.add(columns.cells(row), row.sources);
  for (const FailedCell& failed : set.failed) {
    SummaryRow row{labels.row(failed)};
    row.status = failed.verdict();
    table.add(columns.cells(row), failed.path.string());
  }
  return table;
}

}  // namespace gradsync::report
