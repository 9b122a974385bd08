#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "analysis/model/scaling_model.h"
#include "analysis/tables/model_cells.h"
#include "analysis/tables/run_cells.h"
#include "analysis/tables/tables.h"
#include "timing/statistics.h"

namespace gradsync::report {

namespace {

std::vector<Column> columns() {
  const std::string model = "/time, /bucket, /calibration";
  return {
      {"mode", "mode", true},
      {"model", "model", true},
      {"ranks", "ranks", false, "number of ranks", "/topology/rank"},
      {"batch_per_rank", "batch/rank", false, "option of the run, or predicted", "/config"},
      {"kind", "cell", true},
      {"measured_ms", "measured ms", false, "median iteration of the slowest rank",
       "/time/iteration"},
      {"predicted_ms", "predicted ms", false, "compute + exposed + wait + other", model},
      {"low_ms", "low ms", false, "2.5 % quantile of 200 bootstrap predictions", model},
      {"high_ms", "high ms", false, "97.5 % quantile of 200 bootstrap predictions", model},
      {"error_percent", "error %", false, "predicted/measured - 1", model},
      {"compute_ms", "compute ms", false, "a + c*b", "/time/compute"},
      {"exposed_ms", "exposed ms", false, "replay of the recorded ready times", model},
      {"wait_ms", "wait ms", false, "compute * (0.5^(1/n) quantile of relative compute - 1)",
       "/time/compute"},
      {"other_ms", "other ms", false, "median iteration - compute - exposed", "/time"},
      {"fitted_to", "fitted to", false, "number of cells fitted to", "/time"},
      {"family", "family", false, "number of the family in this table", "/config"},
  };
}

struct Target {
  double ranks, batch;
  double measured_s = kNotMeasured;
  double family = 1;  ///< its number in the table
};

void add_row(const FamilyFit& fit, const FamilyDraws& draws, const Target& target,
             const std::string& source, Table& table) {
  const CellFacts& first = *fit.cells.front().facts;
  const Prediction parts = predict(fit, target.ranks, target.batch);
  const Estimate total = predict_interval(fit, draws, target.ranks, target.batch, kModelSeed);
  const bool measured = std::isfinite(target.measured_s);
  table.add({first.mode_text(), first.model, Cell::count(target.ranks), Cell::count(target.batch),
             measured ? "left out" : "not measured", ms_cell(target.measured_s),
             ms_cell(total.value), ms_cell(total.low), ms_cell(total.high),
             Cell::of(finite_or_none(1e2 * (total.value / target.measured_s - 1)), 1),
             ms_cell(parts.compute_s), ms_cell(parts.exposed_s), ms_cell(parts.wait_s),
             ms_cell(parts.other_s), Cell::count(static_cast<double>(fit.cells.size())),
             Cell::count(target.family)},
            source);
}

/// Each cell as predicted from the others.
void add_left_out(const StudyFacts& study, const FamilyCells& family, double number, Table& table) {
  if (family.size() < 2) return;
  for (const CellFacts* cell : family) {
    FamilyCells others = family;
    std::erase(others, cell);
    const auto index = static_cast<std::size_t>(cell - study.cells.data());
    const FamilyFit fit = fit_family(others, calibration_without(study, index));
    add_row(fit, draw_family(fit, kModelSeed),
            {cell->ranks, cell->batch, cell->medians.iteration_s, number},
            family_sources(study, family), table);
  }
}

std::set<double> of(const std::vector<std::int64_t>& counts) {
  return {counts.begin(), counts.end()};
}

std::set<double> ranks_wanted(const FamilyCells& family, const TableOptions& options) {
  if (!options.predict_ranks.empty()) return of(options.predict_ranks);
  double most = 1;
  for (const CellFacts* cell : family)
    most = std::max(most, cell->ranks);
  return {2 * most, 4 * most, 8 * most};
}

std::set<double> batches_wanted(const FamilyCells& family, const TableOptions& options) {
  if (!options.predict_batches.empty()) return of(options.predict_batches);
  std::set<double> batches;
  for (const CellFacts* cell : family)
    if (cell->batch > 0) batches.insert(cell->batch);
  if (batches.empty()) return batches;
  const double least = *batches.begin(), most = *batches.rbegin();
  batches.insert({std::max(1.0, std::floor(least / 2)), 2 * most});
  return batches;
}

void add_predicted(const StudyFacts& study, const FamilyCells& family, double number,
                   const TableOptions& options, Table& table) {
  const FamilyFit fit = fit_family(family, study.calibration);
  const FamilyDraws draws = draw_family(fit, kModelSeed);
  for (const double ranks : ranks_wanted(family, options))
    for (const double batch : batches_wanted(family, options))
      add_row(fit, draws, {ranks, batch, kNotMeasured, number}, family_sources(study, family),
              table);
  add_missing_note(fit, table);
}

/// The median |error| over the cells that were left out.
std::string score_note(const Table& table) {
  std::vector<double> errors;
  for (const auto& row : table.rows)
    if (row[4].text == "left out") errors.push_back(std::abs(row[9].number));
  const Statistics figures = statistics(errors);
  if (figures.count == 0)
    return "score: no cell could be left out and predicted from the others of its family (at least "
           "two cells that determine the model are needed)";
  return fmt::format(
      "score on cells the model was not fitted to: median |error| {:.1f} %, largest {:.1f} %, "
      "{} cells, {} could not be predicted",
      figures.median, figures.maximum, figures.count, figures.left_out);
}

std::vector<std::string> notes() {
  return {
      "T(n, b) = compute(b) + exposed(n, b) + wait(n, b) + other; \"left out\": predicted from the "
      "other cells of the family alone, their calibration included; ms of the median iteration",
      fmt::format("interval: 95 %, {} bootstrap draws of iterations and residuals, seed {}; it "
                  "holds if the law holds beyond the runs: same link, one rank a core or GPU as "
                  "measured, no congestion",
                  kModelDraws, kModelSeed),
      "wait: median of the slowest of n ranks that are slow independently of each other",
      "family: runs of one model, mode and setting (threads, precision, buckets, ...): one law"};
}

}  // namespace

Table make_prediction_table(const RunStudy& runs, const TableOptions& options) {
  const StudyFacts& study = runs.facts();
  Table table{"prediction", "Scaling model: predicted iteration time", notes(), columns(), {}};
  double number = 0;
  for (const FamilyCells& family : families(study)) {
    ++number;
    add_left_out(study, family, number, table);
    add_predicted(study, family, number, options, table);
  }
  table.notes.insert(table.notes.begin(), score_note(table));
  append_notes(table, remark_notes(runs.set()));
  return table;
}

}  // namespace gradsync::report
