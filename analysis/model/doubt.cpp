#include "analysis/model/doubt.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "timing/statistics.h"

namespace gradsync::report {

namespace {

std::string fix_of(const LawEntry& law) {
  return law.calibrated ? "" : "; run gradsync-train --calibrate";
}

std::string compute_doubt(const FamilyFit& fit) {
  for (const ComputeLaw& law : fit.compute) {
    if (!law.fit.constrained) continue;
    return law.fit.first == 0 ? "compute grows more than in proportion to the batch"
                              : "compute does not grow with the batch in the cells measured";
  }
  return {};
}

std::string left_out_doubt(const std::vector<LeftOutCell>& left_out) {
  const LeftOutErrors errors = left_out_errors(left_out);
  if (errors.cells == 0) return "one cell alone leaves none to check the model with";
  if (!std::isfinite(errors.largest))
    return "the other cells do not determine the model where one is left out";
  if (errors.largest > kLargestLeftOutError)
    return fmt::format("a cell left out is predicted with an error of {:.0f} %, above {:.0f} %",
                       1e2 * errors.largest, 1e2 * kLargestLeftOutError);
  return {};
}

}  // namespace

std::string law_doubt(const FamilyFit& fit) {
  if (!fit.missing.empty()) return fit.missing;
  for (const CellPoint& cell : fit.cells)
    if (cell.facts->scheduled) return "its batch changes within the run (--batch-schedule)";
  return law_doubt(fit.laws);
}

std::string law_doubt(const std::map<CollectiveKind, LawEntry>& laws) {
  for (const auto& [kind, law] : laws) {
    const std::string_view name = kCollectiveNames[static_cast<std::size_t>(kind)];
    if (law.fit.relative_rms() > kLargestResidual)
      return fmt::format("the law of {} fits with a residual of {:.0f} %{}", name,
                         1e2 * law.fit.relative_rms(), fix_of(law));
    if (law.fit.constrained)
      return fmt::format("the collectives {} show no {} of {}{}",
                         law.calibrated ? "of the calibration" : "in training",
                         law.fit.first == 0 ? "latency" : "bandwidth limit", name, fix_of(law));
  }
  return {};
}

double LeftOutCell::error() const {
  return predict(fit, cell->ranks, cell->batch).total_s() / cell->medians.iteration_s - 1;
}

std::vector<LeftOutCell> leave_out_each(const StudyFacts& study, const FamilyCells& family) {
  std::vector<LeftOutCell> all;
  if (family.size() < 2) return all;
  for (const CellFacts* cell : family) {
    FamilyCells others = family;
    std::erase(others, cell);
    const auto index = static_cast<std::size_t>(cell - study.cells.data());
    all.push_back({cell, fit_family(others, calibration_without(study, index))});
  }
  return all;
}

LeftOutErrors left_out_errors(const std::vector<LeftOutCell>& left_out) {
  LeftOutErrors errors{left_out.size(), kNotMeasured, kNotMeasured};
  std::vector<double> sizes;
  for (const LeftOutCell& one : left_out)
    if (const double error = one.error(); std::isfinite(error)) sizes.push_back(std::abs(error));
  if (sizes.empty() || sizes.size() < left_out.size()) return errors;
  errors.median = median(sizes);
  errors.largest = *std::max_element(sizes.begin(), sizes.end());
  return errors;
}

std::string prediction_doubt(const FamilyFit& fit, const std::vector<LeftOutCell>& left_out) {
  std::string why = law_doubt(fit);
  if (why.empty()) why = compute_doubt(fit);
  return why.empty() ? left_out_doubt(left_out) : why;
}

}  // namespace gradsync::report
