#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/verdict/clauses.h"

namespace gradsync::report {

namespace {

constexpr double kWanted = 0.8;        ///< efficiency of weak scaling
constexpr double kLargestError = 0.2;  ///< of the model on any of its own cells
constexpr double kFurthest = 8;        ///< times the largest batch measured

/// E = T(1, b)/T(n, b), as the model predicts both.
double efficiency(const FamilyFit& fit, double ranks, double batch) {
  return predict(fit, 1, batch).total_s() / predict(fit, ranks, batch).total_s();
}

/// The smallest batch up to `most` that reaches kWanted, or 0: efficiency grows with the batch.
double least_batch(const FamilyFit& fit, double ranks, double most) {
  double low = 0, high = most;
  if (!(efficiency(fit, ranks, most) >= kWanted)) return 0;
  while (high - low > 1) {
    const double middle = std::floor((low + high) / 2);
    (efficiency(fit, ranks, middle) >= kWanted ? high : low) = middle;
  }
  return high;
}

double largest_batch(const FamilyFit& fit) {
  double most = 0;
  for (const CellPoint& cell : fit.cells)
    most = std::max(most, cell.facts->batch);
  return most;
}

double largest_error(const FamilyFit& fit) {
  double largest = relative_errors(fit).empty() ? kNotMeasured : 0;
  for (const double error : relative_errors(fit))
    largest = std::max(largest, std::abs(error));
  return largest;
}

std::string sentence(const FamilyFit& fit, double ranks) {
  const double most = kFurthest * largest_batch(fit);
  const double batch = least_batch(fit, ranks, most);
  const std::string where = ranks_text(static_cast<std::int64_t>(ranks));
  if (batch > 0)
    return fmt::format("a batch of {:.0f} per rank would reach {} efficiency at {} (weak scaling)",
                       batch, percent_text(kWanted), where);
  return fmt::format(
      "no batch up to {:.0f} per rank would reach {} efficiency at {} (weak scaling); at {:.0f} it "
      "would be {}",
      most, percent_text(kWanted), where, most, percent_text(efficiency(fit, ranks, most)));
}

}  // namespace

Clauses efficient_batch_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const Cells& family : focus(input)) {
    const Cells top = on_most_ranks(family);
    if (top.empty() || top.front()->run().mode == "none") continue;
    const FamilyFit fit = fit_of(input, top.front()->family);
    const double ranks = static_cast<double>(top.front()->ranks());
    const double error = largest_error(fit);
    if (!(error <= kLargestError) ||
        !std::isfinite(efficiency(fit, ranks, kFurthest * largest_batch(fit))))
      continue;
    clauses.push_back(clause_of(
        "batch", sentence(fit, ranks), family, "/time, /bucket, /calibration",
        fmt::format("{}, {}; predicted by the scaling model (table prediction), whose median error "
                    "on its own {} cells is {}{}",
                    top.front()->run().model, top.front()->run().mode, fit.cells.size(),
                    percent_text(error),
                    compute_law(fit, ranks).one_batch
                        ? "; one batch was measured, so compute is taken as the optimiser's time "
                          "and a rest proportional to the batch"
                        : "")));
  }
  return clauses;
}

}  // namespace gradsync::report
