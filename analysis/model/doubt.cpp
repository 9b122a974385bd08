// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/model/doubt.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "stats/statistics.h"

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
    if (cell.cell->scheduled) return "its batch changes within the run (--batch-schedule)";
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

std::vector<LeftOutCell> leave_out_each(const std::vector<StudyCell>& study, const Cells& family,
                                        const Cells& unseen) {
  std::vector<LeftOutCell> all;
  if (family.size() < 2) return all;
  for (const StudyCell* cell : family) {
    Cells others = family;
    std::erase(others, cell);
    Cells without = unseen;
    without.push_back(cell);
    all.push_back({cell, fit_family(others, calibration_of(study, without))});
  }
  return all;
}

Estimate predict_interval(const FamilyFit& fit, const std::vector<LeftOutCell>& left_out,
                          double ranks, double batch) {
  Estimate estimate;
  estimate.value = predict(fit, ranks, batch).total_s();
  double off = kNotMeasured;
  for (const LeftOutCell& one : left_out) {
    const double error = 1 / (1 + one.error()) - 1;
    if (!std::isfinite(error)) continue;
    off = std::fmax(off, std::abs(error));
    ++estimate.count;
  }
  off += borrowed_share(fit, ranks, batch);
  estimate.low = std::isnan(off) ? off : std::max(0.0, 1 - off) * estimate.value;
  estimate.high = (1 + off) * estimate.value;
  return estimate;
}

void IntervalCoverage::add(const Estimate& predicted, double measured) {
  if (!predicted.has_interval()) return;
  ++cells;
  held += predicted.holds(measured) ? 1 : 0;
}

void IntervalCoverage::add(const IntervalCoverage& more) {
  cells += more.cells;
  held += more.held;
}

std::string IntervalCoverage::text() const {
  return cells == 0 ? "n/a" : fmt::format("{} of {}", held, cells);
}

IntervalCoverage coverage_on_more_ranks(const std::vector<StudyCell>& study, const Cells& family) {
  double most = 1;
  for (const StudyCell* cell : family)
    most = std::max(most, cell->ranks);
  Cells fewer = family, unseen = family, uncalibrated;
  std::erase_if(fewer, [&](const StudyCell* cell) { return cell->ranks == most; });
  std::erase_if(unseen, [&](const StudyCell* cell) { return cell->ranks < most; });
  for (const StudyCell& cell : study)
    if (cell.ranks >= most) uncalibrated.push_back(&cell);
  IntervalCoverage coverage;
  if (fewer.empty()) return coverage;
  const FamilyFit fit = fit_family(fewer, calibration_of(study, uncalibrated));
  const std::vector<LeftOutCell> left_out = leave_out_each(study, fewer, uncalibrated);
  for (const StudyCell* cell : unseen)
    coverage.add(predict_interval(fit, left_out, cell->ranks, cell->batch),
                 cell->medians.iteration_s);
  return coverage;
}

LeftOutErrors left_out_errors(const std::vector<LeftOutCell>& left_out) {
  LeftOutErrors errors{left_out.size(), kNotMeasured, kNotMeasured};
  std::vector<double> sizes;
  for (const LeftOutCell& one : left_out)
    if (const double error = one.error(); std::isfinite(error)) sizes.push_back(std::abs(error));
  if (sizes.empty() || sizes.size() < left_out.size()) return errors;
  errors.median = median(sizes);
  errors.largest = *std::ranges::max_element(sizes);
  return errors;
}

std::string prediction_doubt(const FamilyFit& fit, const std::vector<LeftOutCell>& left_out) {
  std::string why = law_doubt(fit);
  if (why.empty()) why = compute_doubt(fit);
  return why.empty() ? left_out_doubt(left_out) : why;
}

}  // namespace gradsync::report
