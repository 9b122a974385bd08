#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/model/doubt.h"
#include "analysis/verdict/clauses.h"
#include "options/modes.h"
#include "support/parse.h"

namespace gradsync::report {

namespace {

constexpr double kWanted = 0.8;  ///< efficiency of weak scaling

/// E = T(1, b)/T(n, b), as the model predicts both.
double efficient_batch_efficiency(const FamilyFit& fit, double ranks, double batch) {
  return predict(fit, 1, batch).total_s() / predict(fit, ranks, batch).total_s();
}

struct Range {
  double least, most;
  bool empty() const { return !(least < most); }
};

/// The batches per rank between which both one rank and `ranks` were measured.
Range measured_range(const FamilyFit& fit, double ranks) {
  Range range{0, HUGE_VAL};
  for (const double on : {1.0, ranks}) {
    Range of{HUGE_VAL, 0};
    for (const CellPoint& cell : fit.cells)
      if (cell.facts->ranks == on)
        of = {std::min(of.least, cell.facts->batch), std::max(of.most, cell.facts->batch)};
    range = {std::max(range.least, of.least), std::min(range.most, of.most)};
  }
  return range;
}

/// The smallest batch of the range that reaches kWanted, which its end does: efficiency grows with
/// the batch.
double least_batch(const FamilyFit& fit, double ranks, Range range) {
  while (range.most - range.least > 1) {
    const double middle = std::floor((range.least + range.most) / 2);
    (efficient_batch_efficiency(fit, ranks, middle) >= kWanted ? range.most : range.least) = middle;
  }
  return range.most;
}

struct EfficientBatchAnswer {
  const char* sentence;
  std::string text;
};

EfficientBatchAnswer efficient_batch_answer_for(const FamilyFit& fit, double ranks,
                                                const Range& range) {
  const std::string what = fmt::format("{} efficiency at {} (weak scaling)", percent_text(kWanted),
                                       count_text(static_cast<std::int64_t>(ranks), "rank"));
  const std::string measured =
      fmt::format("from {:.0f} to {:.0f} per rank, the range measured,", range.least, range.most);
  if (efficient_batch_efficiency(fit, ranks, range.least) >= kWanted)
    return {"batch.all", fmt::format("every batch {} reaches {}", measured, what)};
  if (efficient_batch_efficiency(fit, ranks, range.most) >= kWanted)
    return {"batch.from", fmt::format("a batch of {:.0f} per rank reaches {}",
                                      least_batch(fit, ranks, range), what)};
  return {"batch.none", fmt::format("no batch {} reaches {}", measured, what)};
}

}  // namespace

Clauses efficient_batch_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const Cells& family : focus(input)) {
    const Cells top = on_most_ranks(family);
    if (top.empty() || !mode_named(top.front()->run().mode).exchanges) continue;
    const FamilyFit fit = fit_of(input, top.front()->family);
    const double ranks = static_cast<double>(top.front()->ranks());
    const Range range = measured_range(fit, ranks);
    const auto left_out = left_out_of(input, top.front()->family);
    if (range.empty() || !prediction_doubt(fit, left_out).empty() ||
        !std::isfinite(efficient_batch_efficiency(fit, ranks, range.least) +
                       efficient_batch_efficiency(fit, ranks, range.most)))
      continue;
    const LeftOutErrors errors = left_out_errors(left_out);
    EfficientBatchAnswer answer = efficient_batch_answer_for(fit, ranks, range);
    clauses.push_back(clause_of(
        answer.sentence, std::move(answer.text), family, "/time, /bucket, /calibration",
        fmt::format("{}, {}; by the scaling model (table prediction), which predicts each of its "
                    "{} cells, left out, with a median error of {} and at most {}",
                    top.front()->run().model, top.front()->run().mode, errors.cells,
                    percent_text(errors.median), percent_text(errors.largest))));
  }
  return clauses;
}

}  // namespace gradsync::report
