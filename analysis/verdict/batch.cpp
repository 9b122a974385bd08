// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/model/doubt.h"
#include "analysis/verdict/clauses.h"
#include "base/parse.h"
#include "options/modes.h"

namespace gradsync::report {

namespace {

constexpr double kWanted = 0.8;  ///< efficiency of weak scaling

/// More whole batches than these are not predicted one by one, but as many of them, evenly spread.
constexpr double kMostBatches = 1024;

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
      if (cell.cell->ranks == on)
        of = {std::min(of.least, cell.cell->batch), std::max(of.most, cell.cell->batch)};
    range = {std::max(range.least, of.least), std::min(range.most, of.most)};
  }
  return range;
}

/// The measured efficiency by batch, of batches that both one rank and `ranks` ran.
std::map<double, double> measured_efficiencies(const FamilyFit& fit, double ranks) {
  std::map<double, double> measured;
  for (const CellPoint& one : fit.cells)
    for (const CellPoint& top : fit.cells)
      if (one.cell->ranks == 1 && top.cell->ranks == ranks && one.cell->batch == top.cell->batch)
        measured[one.cell->batch] = one.cell->medians.iteration_s / top.cell->medians.iteration_s;
  return measured;
}

/// Whole batches of a range, its ends among them, and whether the model predicts kWanted.
struct PredictedBatch {
  double batch;
  bool reaches;
};

/// Empty where one of them cannot be predicted.
std::vector<PredictedBatch> predicted_batches(const FamilyFit& fit, double ranks, Range range,
                                              const std::map<double, double>& measured) {
  const double step = std::max(1.0, std::ceil((range.most - range.least) / kMostBatches));
  std::set<double> batches = {range.most};
  for (double batch = range.least; batch < range.most; batch += step)
    batches.insert(batch);
  for (const auto& [batch, efficiency] : measured)
    batches.insert(batch);
  std::vector<PredictedBatch> all;
  for (const double batch : batches) {
    const double efficiency =
        predict(fit, 1, batch).total_s() / predict(fit, ranks, batch).total_s();
    if (!std::isfinite(efficiency)) return {};
    all.push_back({batch, efficiency >= kWanted});
  }
  return all;
}

/// "4 to 12", "4 to 12 and 30 to 64": those that reach it.
std::string reaching_text(const std::vector<PredictedBatch>& all) {
  std::vector<std::string> ranges;
  for (std::size_t from = 0, to = 0; from < all.size(); from = to + 1) {
    to = from;
    if (!all[from].reaches) continue;
    while (to + 1 < all.size() && all[to + 1].reaches)
      ++to;
    ranges.push_back(from == to ? fmt::format("{:.0f}", all[from].batch)
                                : fmt::format("{:.0f} to {:.0f}", all[from].batch, all[to].batch));
  }
  return fmt::format("{}", fmt::join(ranges, " and "));
}

/// "85 % at 4, 78 % at 16".
std::string measured_text(const std::map<double, double>& measured) {
  std::vector<std::string> texts;
  for (const auto& [batch, efficiency] : measured)
    texts.push_back(fmt::format("{} at {:.0f}", percent_text(efficiency), batch));
  return fmt::format("{}", fmt::join(texts, ", "));
}

/// Whether the model puts each measured batch on its side of kWanted.
bool agree(const std::vector<PredictedBatch>& predicted, const std::map<double, double>& measured) {
  return std::ranges::all_of(predicted, [&](const PredictedBatch& one) {
    const auto known = measured.find(one.batch);
    return known == measured.end() || (known->second >= kWanted) == one.reaches;
  });
}

/// Nothing is taken for granted of how efficiency depends on the batch.
Answer answer_for(const std::vector<PredictedBatch>& predicted,
                  const std::map<double, double>& measured, double ranks) {
  const std::string what = fmt::format("{} efficiency at {} (weak scaling)", percent_text(kWanted),
                                       count_text(static_cast<std::int64_t>(ranks), "rank"));
  const std::string seen =
      measured.empty() ? "" : fmt::format("; measured: {}", measured_text(measured));
  if (!agree(predicted, measured))
    return {"batch.measured",
            fmt::format("which batches reach {} is given for those measured alone, "
                        "since the model differs there: {}",
                        what, measured_text(measured))};
  const std::string range = fmt::format("from {:.0f} to {:.0f} per rank, the range measured,",
                                        predicted.front().batch, predicted.back().batch);
  const auto reaching = std::ranges::count_if(predicted, &PredictedBatch::reaches);
  if (reaching == static_cast<std::ptrdiff_t>(predicted.size()))
    return {"batch.all", fmt::format("every batch {} reaches {}{}", range, what, seen)};
  if (reaching == 0)
    return {"batch.none", fmt::format("no batch {} reaches {}{}", range, what, seen)};
  return {"batch.from", fmt::format("of the batches {} those of {} reach {}{}", range,
                                    reaching_text(predicted), what, seen)};
}

}  // namespace

Clauses efficient_batch_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const auto& [family, top] : focus(input)) {
    if (top.empty() || !mode_named(top.front()->run().mode).exchanges) continue;
    const FamilyFit fit = fit_family(family, calibration_of(input.cells));
    const double ranks = static_cast<double>(top.front()->run().ranks);
    const Range range = measured_range(fit, ranks);
    const auto left_out = leave_out_each(input.cells, family);
    if (range.empty() || !prediction_doubt(fit, left_out).empty()) continue;
    const auto measured = measured_efficiencies(fit, ranks);
    const auto predicted = predicted_batches(fit, ranks, range, measured);
    if (predicted.empty()) continue;
    const LeftOutErrors errors = left_out_errors(left_out);
    Answer answer = answer_for(predicted, measured, ranks);
    clauses.push_back(clause_of(
        answer.sentence, std::move(answer.text), family, "/time, /bucket, /calibration",
        fmt::format("{}, {}; by the scaling model (table prediction), which predicts each of its "
                    "{} cells, left out, with a median error of {} and at most {}",
                    top.front()->run().model, top.front()->run().mode, errors.cells,
                    percent_text(errors.median), percent_text(errors.largest))));
  }
  return clauses;
}

namespace {

/// The smallest and the largest batch per rank on the most ranks.
struct Pair {
  const StudyCell &small, &large;
  double share_rise() const { return small.exposed_share - large.exposed_share; }
};

/// Efficiency of weak scaling against one rank with the same batch; nothing without such a cell.
std::optional<Estimate> efficiency_of(const Cells& family, const StudyCell& cell) {
  for (const StudyCell* base : family)
    if (base->run().ranks == 1 && base->run().batch_per_rank == cell.run().batch_per_rank)
      return time_ratio(base->group, cell.group);
  return std::nullopt;
}

std::string points(double share) {
  return fmt::format("{:.{}f}", 1e2 * share, share < 0.1 ? 1 : 0);
}

/// Answer where small batches scale worse than runs of the same work differ, with what of it is
/// exposed communication.
std::optional<Answer> loss(const Pair& pair, const std::optional<Estimate>& small,
                           const std::optional<Estimate>& large, const RunSpread& spread) {
  if (!small || !large || !is_below(*small, *large, spread)) return std::nullopt;
  const double lost = large->value - small->value;
  const double exposed = std::max(0.0, pair.share_rise());
  const bool most = exposed >= kMainCause * lost;
  return Answer{
      most ? "batch.communication" : "batch.loss",
      fmt::format(
          "from {} to {} per rank the efficiency at {} falls from {} to {}; exposed "
          "communication accounts for {}{}",
          pair.large.run().batch_per_rank, count_text(pair.small.run().batch_per_rank, "image"),
          count_text(pair.small.run().ranks, "rank"), percent_text(large->value),
          percent_text(small->value),
          exposed < lost ? fmt::format("{} of these {} points", points(exposed), points(lost))
                         : fmt::format("all of these {} points", points(lost)),
          most ? ": small batches scale worse because the exchange does not shrink with them"
               : ", so it is not the main cause")};
}

/// Answer for `top`, the cells by batch; nothing where neither sentence holds for all of them.
std::optional<Answer> share(const Pair& pair, const Cells& top) {
  const StudyCell &small = pair.small, &large = pair.large;
  const bool none_exposes_more = std::ranges::all_of(
      top, [&](const StudyCell* one) { return one->exposed_share <= large.exposed_share; });
  if (none_exposes_more)
    return Answer{
        "batch.no-more",
        fmt::format("smaller batches do not expose more communication here: {} of the iteration "
                    "at {} per rank, {} at {}",
                    percent_text(small.exposed_share),
                    count_text(small.run().batch_per_rank, "image"),
                    percent_text(large.exposed_share), large.run().batch_per_rank)};
  if (!(pair.share_rise() >= kWorthSaying)) return std::nullopt;
  return Answer{
      "batch.share",
      fmt::format(
          "from {} to {} per rank compute goes from {} to {}, exposed "
          "communication from {} to {}, and its share of the iteration rises from {} "
          "to {}",
          large.run().batch_per_rank, count_text(small.run().batch_per_rank, "image"),
          format_duration(large.medians.compute_s), format_duration(small.medians.compute_s),
          format_duration(large.medians.exposed_s), format_duration(small.medians.exposed_s),
          percent_text(large.exposed_share), percent_text(small.exposed_share))};
}

}  // namespace

Clauses small_batch_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (auto& [family, top] : focus(input)) {
    std::erase_if(top, [](const StudyCell* cell) {
      return !cell->exchanges() || cell->run().batch_per_rank <= 0 ||
             !std::isfinite(cell->exposed_share) || !std::isfinite(cell->medians.compute_s);
    });
    if (top.size() < 2 || top.front()->run().batch_per_rank == top.back()->run().batch_per_rank)
      continue;
    const Pair pair{*top.front(), *top.back()};
    const std::string& model = pair.small.run().model;
    auto answer = loss(pair, efficiency_of(family, pair.small), efficiency_of(family, pair.large),
                       input.spreads.at(model));
    if (!answer) answer = share(pair, top);
    if (!answer) continue;
    clauses.push_back(
        clause_of(answer->sentence, answer->text, {top.front(), top.back()},
                  "/time/compute, /time/exposed, /time/iteration",
                  fmt::format("{}, {}, {}; medians of the iterations after warm-up", model,
                              pair.small.run().mode, count_text(pair.small.run().ranks, "rank"))));
  }
  return clauses;
}

}  // namespace gradsync::report
