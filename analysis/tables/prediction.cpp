#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "analysis/model/doubt.h"
#include "analysis/model/scaling_model.h"
#include "analysis/tables/model_cells.h"
#include "analysis/tables/run_cells.h"
#include "analysis/tables/tables.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

std::vector<Column> prediction_columns() {
  const std::string model = "/time, /bucket, /calibration";
  std::vector<Column> result = {
      {"mode", "mode", true},
      {"model", "model", true},
      {"ranks", "ranks", false, "number of ranks", "/topology/rank"},
      {"batch_per_rank", "batch/rank", false, "option of the run, or predicted", "/config"},
      {"kind", "cell", true},
      {"measured_ms", "measured ms", false, "median iteration of the slowest rank",
       "/time/iteration"},
      {"predicted_ms", "predicted ms", false, "compute + exposed + wait + other", model},
      {"low_ms", "low ms", false, "predicted x (1 - most that a cell left out was off), 0 or more",
       model},
      {"high_ms", "high ms", false, "predicted x (1 + most that a cell left out was off)", model},
      {"held", "held", true},
      {"error_percent", "error %", false, "predicted/measured - 1", model},
      {"compute_ms", "compute ms", false, "a + c*b", "/time/compute"},
      {"exposed_ms", "exposed ms", false, "replay of the recorded ready times", model},
      {"wait_ms", "wait ms", false, "compute * (0.5^(1/n) quantile of relative compute - 1)",
       "/time/compute"},
      {"other_ms", "other ms", false, "median iteration - compute - exposed", "/time"},
      {"fitted_to", "fitted to", false, "number of cells fitted to", "/time"},
      {"family", "family", false, "number of the family in this table", "/config"},
  };
  keep(result, {"kind", "measured_ms", "predicted_ms", "error_percent"});
  return result;
}

struct Target {
  double ranks, batch;
  const char* kind;
  double measured_s = kNotMeasured;
  double family = 1;  ///< its number in the table
};

/// Coverage of one family, by what its rows predict.
struct FamilyCoverage {
  IntervalCoverage left_out, more_ranks;
};

/// An interval of unknown coverage is not shown.
void prediction_add_row(const FamilyFit& fit, const Estimate& total, const Target& target,
                        const IntervalCoverage& coverage, const std::string& source, Table& table) {
  const CellFacts& first = *fit.cells.front().facts;
  const Prediction parts = predict(fit, target.ranks, target.batch);
  const bool covered = coverage.cells > 0;
  table.add(
      {first.mode_text(), first.model, Cell::count(target.ranks), Cell::count(target.batch),
       target.kind, ms_cell(target.measured_s), ms_cell(total.value),
       ms_cell(covered ? total.low : kNotMeasured), ms_cell(covered ? total.high : kNotMeasured),
       coverage.text(), Cell::of(finite_or_none(1e2 * (total.value / target.measured_s - 1)), 1),
       ms_cell(parts.compute_s), ms_cell(parts.exposed_s), ms_cell(parts.wait_s),
       ms_cell(parts.other_s), Cell::count(static_cast<double>(fit.cells.size())),
       Cell::count(target.family)},
      source);
}

/// Each cell as predicted from the others. Returns how many of the intervals, which rest on the
/// others as well, held theirs.
IntervalCoverage add_left_out(const StudyFacts& study, const FamilyCells& family,
                              const std::vector<LeftOutCell>& left_out, const std::string& source,
                              double number, Table& table) {
  std::vector<Estimate> totals;
  IntervalCoverage coverage;
  for (const LeftOutCell& one : left_out) {
    FamilyCells others = family;
    std::erase(others, one.cell);
    totals.push_back(predict_interval(one.fit, leave_out_each(study, others, {one.cell}),
                                      one.cell->ranks, one.cell->batch));
    coverage.add(totals.back(), one.cell->medians.iteration_s);
  }
  for (std::size_t i = 0; i < left_out.size(); ++i) {
    const CellFacts& cell = *left_out[i].cell;
    prediction_add_row(left_out[i].fit, totals[i],
                       {cell.ranks, cell.batch, "left out", cell.medians.iteration_s, number},
                       coverage, source, table);
  }
  return coverage;
}

std::set<double> of(const std::vector<std::int64_t>& counts) {
  return {counts.begin(), counts.end()};
}

double most_ranks(const FamilyCells& family) {
  double most = 1;
  for (const CellFacts* cell : family)
    most = std::max(most, cell->ranks);
  return most;
}

std::set<double> ranks_wanted(const FamilyCells& family, const TableOptions& options) {
  if (!options.predict_ranks.empty()) return of(options.predict_ranks);
  const double most = most_ranks(family);
  return {2 * most, 4 * most, 8 * most};
}

std::set<double> measured_batches(const FamilyCells& family) {
  std::set<double> batches;
  for (const CellFacts* cell : family)
    if (cell->batch > 0) batches.insert(cell->batch);
  return batches;
}

std::string name_of(const CellFacts& cell, double number) {
  return fmt::format("{}, {} (family {:.0f})", cell.model, cell.mode, number);
}

/// Those that are asked for within the range measured; a note says which are outside it.
std::set<double> batches_wanted(const FamilyCells& family, double number,
                                const TableOptions& options, Table& table) {
  const std::set<double> measured = measured_batches(family);
  std::set<double> batches =
      options.predict_batches.empty() ? measured : of(options.predict_batches);
  for (const double batch : of(options.predict_batches))
    if (measured.empty() || batch < *measured.begin() || batch > *measured.rbegin()) {
      batches.erase(batch);
      table.notes.push_back(
          fmt::format("not predicted: {}: batch {:.0f} is outside what was "
                      "measured",
                      name_of(*family.front(), number), batch));
    }
  return batches;
}

void add_predicted(const FamilyCells& family, const FamilyFit& fit,
                   const std::vector<LeftOutCell>& left_out, const FamilyCoverage& coverage,
                   const std::string& source, double number, const TableOptions& options,
                   Table& table) {
  const double most = most_ranks(family);
  for (const double ranks : ranks_wanted(family, options))
    for (const double batch : batches_wanted(family, number, options, table))
      prediction_add_row(
          fit, predict_interval(fit, left_out, ranks, batch),
          {ranks, batch, ranks > most ? "extrapolated" : "not measured", kNotMeasured, number},
          ranks > most ? coverage.more_ranks : coverage.left_out, source, table);
}

FamilyCoverage prediction_add_family(const StudyFacts& study, const FamilyCells& family,
                                     double number, const TableOptions& options, Table& table) {
  const std::string source = family_sources(study, family);
  const std::vector<LeftOutCell> left_out = leave_out_each(study, family);
  FamilyCoverage coverage;
  coverage.left_out = add_left_out(study, family, left_out, source, number, table);
  const FamilyFit fit = fit_family(family, study.calibration);
  const std::string doubt = prediction_doubt(fit, left_out);
  if (doubt.empty()) {
    coverage.more_ranks = coverage_on_more_ranks(study, family);
    add_predicted(family, fit, left_out, coverage, source, number, options, table);
  } else {
    table.notes.push_back(
        fmt::format("not predicted: {}: {}", name_of(*family.front(), number), doubt));
  }
  add_missing_note(fit, table);
  return coverage;
}

/// The median |error| over the cells that were left out.
std::string score_note(const Table& table) {
  std::vector<double> errors;
  for (const auto& row : table.rows)
    if (row[4].text == "left out") errors.push_back(std::abs(row[10].number));
  const Statistics figures = statistics(errors);
  if (figures.count == 0)
    return "score: no cell could be predicted from the others of its family (at least "
           "two cells that determine the model are needed)";
  return fmt::format(
      "score on cells the model was not fitted to: median |error| {:.1f} %, largest {:.1f} %, "
      "{} cells, {} could not be predicted",
      figures.median, figures.maximum, figures.count, figures.left_out);
}

std::string coverage_note(const FamilyCoverage& all) {
  return fmt::format(
      "low, high: as far from the prediction as the cell left out that was off most; on cells that "
      "neither model nor interval were made from they held {} left out, {} on the most ranks of a "
      "family as predicted from fewer (held: of the row's family; extrapolated rows by the latter; "
      "no interval where neither was measured)",
      all.left_out.text(), all.more_ranks.text());
}

std::vector<std::string> prediction_notes() {
  return {
      "T(n, b) = compute(b) + exposed(n, b) + wait(n, b) + other; \"left out\": predicted from the "
      "other cells of the family alone, their calibration included; ms of the median iteration",
      fmt::format("predicted are batches within the range measured, of families that predict each "
                  "cell left out to {:.0f} % and have no coefficient at its bound 0; "
                  "\"extrapolated\": to more ranks than were measured",
                  1e2 * kLargestLeftOutError),
      "predictions are for the link of the runs, one rank a core or GPU as measured, no congestion",
      "wait: median of the slowest of n ranks with independent delays",
      "family: runs of one model, mode and setting (threads, precision, buckets, ...): one law"};
}

}  // namespace

Table make_prediction_table(const RunStudy& runs, const TableOptions& options) {
  const StudyFacts& study = runs.facts();
  Table table{"prediction",
              "Scaling model: predicted iteration time",
              prediction_notes(),
              prediction_columns(),
              {}};
  double number = 0;
  FamilyCoverage coverage;
  for (const FamilyCells& family : families(study)) {
    const FamilyCoverage one = prediction_add_family(study, family, ++number, options, table);
    coverage.left_out.add(one.left_out);
    coverage.more_ranks.add(one.more_ranks);
  }
  table.notes.insert(table.notes.begin(), {score_note(table), coverage_note(coverage)});
  return table;
}

}  // namespace gradsync::report
