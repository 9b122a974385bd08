#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "analysis/verdict/clauses.h"
#include "base/parse.h"

namespace gradsync::report {

namespace {

/// A cause is named where it accounts for at least this part of the loss.
constexpr double kSmallBatchMost = 0.5;

/// The smallest and the largest batch per rank on the most ranks.
struct Pair {
  const MeasuredCell &small, &large;
  double share_rise() const { return small.exposed_share - large.exposed_share; }
};

/// Efficiency of weak scaling against one rank with the same batch; nothing without such a cell.
std::optional<Estimate> small_batch_efficiency(const Cells& family, const MeasuredCell& cell) {
  for (const MeasuredCell* base : family)
    if (base->ranks() == 1 && base->batch_per_rank() == cell.batch_per_rank())
      return ratio_estimate(base->iteration_s, cell.iteration_s, kVerdictSeed);
  return std::nullopt;
}

struct SmallBatchAnswer {
  const char* sentence;
  std::string text;
};

std::string points(double share) {
  return fmt::format("{:.{}f}", 1e2 * share, share < 0.1 ? 1 : 0);
}

std::string part_of_points(double exposed, double lost) {
  return exposed < lost ? fmt::format("{} of these {} points", points(exposed), points(lost))
                        : fmt::format("all of these {} points", points(lost));
}

/// Where small batches scale worse than runs of the same work differ, and what of it is exposed
/// communication.
std::optional<SmallBatchAnswer> loss(const Pair& pair, const std::optional<Estimate>& small,
                                     const std::optional<Estimate>& large,
                                     const RunSpread& spread) {
  if (!small || !large || !spread.known() || !(small->high * spread.factor < large->low))
    return std::nullopt;
  const double lost = large->value - small->value;
  const double exposed = std::max(0.0, pair.share_rise());
  const bool most = exposed >= kSmallBatchMost * lost;
  return SmallBatchAnswer{
      most ? "batch.communication" : "batch.loss",
      fmt::format("from {} to {} images per rank the efficiency at {} falls from {} to {}; exposed "
                  "communication accounts for {}{}",
                  pair.large.batch_per_rank(), pair.small.batch_per_rank(),
                  count_text(pair.small.ranks(), "rank"), percent_text(large->value),
                  percent_text(small->value), part_of_points(exposed, lost),
                  most
                      ? ": small batches scale worse because the exchange does not shrink with them"
                      : ", so it is not the main cause")};
}

/// Answer for `top`, the cells by batch; nothing where neither sentence holds for all of them.
std::optional<SmallBatchAnswer> share(const Pair& pair, const Cells& top) {
  const MeasuredCell &small = pair.small, &large = pair.large;
  const bool none_exposes_more = std::all_of(top.begin(), top.end(), [&](const MeasuredCell* one) {
    return one->exposed_share <= large.exposed_share;
  });
  if (none_exposes_more)
    return SmallBatchAnswer{
        "batch.no-more",
        fmt::format("smaller batches do not expose more communication here: {} of the iteration "
                    "at {} images per rank, {} at {}",
                    percent_text(small.exposed_share), small.batch_per_rank(),
                    percent_text(large.exposed_share), large.batch_per_rank())};
  if (!(pair.share_rise() > 0)) return std::nullopt;
  return SmallBatchAnswer{
      "batch.share",
      fmt::format("from {} to {} images per rank compute goes from {} to {}, exposed "
                  "communication from {} to {}, and its share of the iteration rises from {} "
                  "to {}",
                  large.batch_per_rank(), small.batch_per_rank(),
                  format_duration(large.median_compute_s), format_duration(small.median_compute_s),
                  format_duration(large.median_exposed_s), format_duration(small.median_exposed_s),
                  percent_text(large.exposed_share), percent_text(small.exposed_share))};
}

}  // namespace

Clauses small_batch_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const Cells& family : focus(input)) {
    Cells top = on_most_ranks(family);
    std::erase_if(top, [](const MeasuredCell* cell) {
      return cell->batch_per_rank() <= 0 || !std::isfinite(cell->exposed_share) ||
             !std::isfinite(cell->median_compute_s);
    });
    if (top.size() < 2 || top.front()->batch_per_rank() == top.back()->batch_per_rank()) continue;
    const Pair pair{*top.front(), *top.back()};
    const std::string& model = pair.small.run().model;
    auto answer = loss(pair, small_batch_efficiency(family, pair.small),
                       small_batch_efficiency(family, pair.large), input.spreads.at(model));
    if (!answer) answer = share(pair, top);
    if (!answer) continue;
    clauses.push_back(
        clause_of(answer->sentence, answer->text, {top.front(), top.back()},
                  "/time/compute, /time/exposed, /time/iteration",
                  fmt::format("{}, {}, {}; medians of the iterations after warm-up", model,
                              pair.small.run().mode, count_text(pair.small.ranks(), "rank"))));
  }
  return clauses;
}

}  // namespace gradsync::report
