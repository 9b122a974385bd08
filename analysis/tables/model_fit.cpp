#include <fmt/format.h>

#include "analysis/model/scaling_model.h"
#include "analysis/tables/model_cells.h"
#include "analysis/tables/run_cells.h"
#include "analysis/tables/tables.h"

namespace gradsync::report {

namespace {

std::vector<Column> model_fit_columns() {
  return {
      {"model", "model", true},
      {"mode", "mode", true},
      {"part", "part", true},
      {"constant_us", "constant us", false,
       "collectives: alpha, the time of one step; compute: a of a + c*b",
       "/calibration, /bucket, /time/compute"},
      {"bandwidth_gb_per_s", "GB/s", false, "1/beta, bytes of one link in a second / 1e9",
       "/calibration, /bucket"},
      {"per_image_us", "us/image", false, "c of compute(b) = a + c*b", "/time/compute"},
      {"residual_percent", "residual %", false, "root mean square of fitted/measured - 1",
       "/calibration, /bucket, /time/compute"},
      {"points", "n", false, "number of points fitted to", "/calibration, /bucket, /time/compute"},
      {"slowdown", "slowdown", false,
       "sum of the shortest durations in training / sum of the fitted times, median over cells",
       "/bucket/start, /bucket/end"},
      {"contention_ns_per_byte", "contention ns/B", false,
       "(compute overlapped with the exchange - compute alone) / overlapped bytes, median over "
       "cells",
       "/counterfactual/compute, /bucket"},
      {"source", "fitted to", true},
  };
}

void add_laws(const FamilyFit& fit, const std::string& source, Table& table) {
  const CellFacts& first = *fit.cells.front().facts;
  for (const auto& [kind, law] : fit.laws)
    table.add({first.model, first.mode_text(),
               std::string(kCollectiveNames[static_cast<std::size_t>(kind)]),
               Cell::of(1e6 * law.fit.first, 2), Cell::of(finite_or_none(1e-9 / law.fit.second), 3),
               Cell(""), Cell::of(finite_or_none(1e2 * law.fit.relative_rms()), 1),
               Cell::count(static_cast<double>(law.fit.points)), Cell::of(fit.slowdown, 2),
               Cell::of(1e9 * fit.contention_s_per_byte, 2),
               law.source + (law.fit.constrained ? ", a negative coefficient set to 0" : "")},
              source);
}

void add_compute(const FamilyFit& fit, double ranks, const std::string& source, Table& table) {
  const CellFacts& first = *fit.cells.front().facts;
  const ComputeLaw& law = compute_law(fit, ranks);
  if (law.cells == 0) return;
  table.add(
      {first.model, first.mode_text(), ranks > 1 ? "compute, several ranks" : "compute, one rank",
       Cell::of(1e6 * law.fit.first, 1), Cell(""), Cell::of(1e6 * law.fit.second, 2),
       Cell::of(finite_or_none(1e2 * law.fit.relative_rms()), 1),
       Cell::count(static_cast<double>(law.cells)), Cell(""), Cell(""),
       law.one_batch ? "one batch: optimizer constant, the rest proportional"
                     : "median compute of the cells"},
      source);
}

}  // namespace

Table make_model_fit_table(const RunStudy& runs, const TableOptions&) {
  const StudyFacts& study = runs.facts();
  Table table{"model-fit",
              "Scaling model: what it was fitted to",
              {"collectives: t(S, n) = alpha * steps(n) + S * share(n) / bandwidth; all-reduce: "
               "steps 2(n-1), share 2(n-1)/n; gather, scatter, all-gather: n-1 both; broadcast, "
               "reduce: log2 n both; coefficients not negative",
               "compute(b) = constant + b * (us/image); least squares on relative residuals; "
               "residual: root mean square of fitted/measured - 1; n: points fitted to",
               "slowdown: collectives in training over calibrated ones (1: fitted in training)",
               "contention: compute time lost per byte of overlapped communication (0: no run has "
               "windows of --counterfactual); compute is given without it"},
              model_fit_columns(),
              {}};
  for (const FamilyCells& cells : families(study)) {
    const FamilyFit fit = fit_family(cells, study.calibration);
    const std::string source = family_sources(study, cells);
    add_laws(fit, source, table);
    for (const double ranks : {1.0, 2.0})
      if (holds_ranks(cells, ranks)) add_compute(fit, ranks, source, table);
    add_missing_note(fit, table);
  }
  return table;
}

}  // namespace gradsync::report
