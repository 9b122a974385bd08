#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "analysis/verdict/clauses.h"
#include "support/parse.h"

namespace gradsync::report {

namespace {

enum class Kind { kWeak, kStrong };

/// Cells of one family that differ in ranks alone: at one batch per rank (weak) or in all (strong).
struct Series {
  Kind kind = Kind::kWeak;
  std::int64_t batch = 0;
  Cells cells;  ///< by ranks, at least two
  const MeasuredCell& base() const { return *cells.front(); }
  const MeasuredCell& top() const { return *cells.back(); }
};

std::int64_t batch_of(const MeasuredCell& cell, Kind kind) {
  return kind == Kind::kWeak ? cell.batch_per_rank() : cell.run().batch_global;
}

Cells with_batch(const Cells& family, Kind kind, std::int64_t batch) {
  Cells cells;
  for (const MeasuredCell* cell : family) {
    const bool known = std::any_of(cells.begin(), cells.end(),
                                   [&](const auto* one) { return one->ranks() == cell->ranks(); });
    if (batch_of(*cell, kind) == batch && std::isfinite(cell->median_iteration_s) && !known)
      cells.push_back(cell);
  }
  std::stable_sort(cells.begin(), cells.end(),
                   [](const auto* a, const auto* b) { return a->ranks() < b->ranks(); });
  return cells;
}

/// The series of a kind with most ranks on top, then most cells, then the largest batch.
std::optional<Series> best_series(const Cells& family, Kind kind) {
  std::optional<Series> best;
  const auto weight = [](const Series& series) {
    return std::make_tuple(series.top().ranks(), series.cells.size(), series.batch);
  };
  for (const MeasuredCell* member : family) {
    const std::int64_t batch = batch_of(*member, kind);
    Series series{kind, batch, with_batch(family, kind, batch)};
    if (batch <= 0 || series.cells.size() < 2) continue;
    if (!best || weight(series) > weight(*best)) best = std::move(series);
  }
  return best;
}

const char* word(Kind kind) {
  return kind == Kind::kWeak ? "weak" : "strong";
}

/// E = T(base)/T(n) for weak scaling, times base/n for strong scaling.
Estimate efficiency(const Series& series) {
  Estimate share =
      ratio_estimate(series.base().iteration_s, series.top().iteration_s, kVerdictSeed);
  const double factor = series.kind == Kind::kWeak ? 1.0
                                                   : static_cast<double>(series.base().ranks()) /
                                                         static_cast<double>(series.top().ranks());
  share.value *= factor;
  share.low *= factor;
  share.high *= factor;
  return share;
}

std::string sentence(const Series& series, const Estimate& share) {
  std::string text = fmt::format(
      "{} scaling, {} images {}: efficiency {}{} at {} against {} of the same mode",
      word(series.kind), series.batch, series.kind == Kind::kWeak ? "per rank" : "in all",
      percent_text(share.value), interval_text(share), ranks_text(series.top().ranks()),
      ranks_text(series.base().ranks()));
  if (share.value > 1)
    text += "; above 100 % is no gain of communication: look at caches, clocks and the base run";
  return text;
}

VerdictClause clause_for(const Series& series, const Estimate& share) {
  return clause_of(
      "scaling", sentence(series, share), {&series.base(), &series.top()}, "/time/iteration",
      fmt::format("{}, {}; ratio of median iterations of the slowest rank, 95 % bootstrap "
                  "interval, seed {}",
                  series.top().run().model, series.top().run().mode, kVerdictSeed));
}

/// Where the time of weak scaling went: more exposed communication, or compute that grew.
std::string loss_sentence(const Series& series) {
  const MeasuredCell &base = series.base(), &top = series.top();
  const double lost_s = top.median_iteration_s - base.median_iteration_s;
  const double compute_s = top.median_compute_s - base.median_compute_s;
  const double exposed_s = top.median_exposed_s - base.median_exposed_s;
  if (!(lost_s > 0) || !std::isfinite(compute_s) || !std::isfinite(exposed_s)) return {};
  const bool compute = compute_s > exposed_s;
  return fmt::format(
      "of the {} that a step grows from {} to {}, compute itself is {} and exposed "
      "communication {}{}",
      format_duration(lost_s), ranks_text(base.ranks()), ranks_text(top.ranks()),
      format_duration(compute_s), format_duration(exposed_s),
      compute ? "; compute that grows with the ranks points to cores, memory or "
                "power they share"
              : "");
}

/// Only where the efficiency is below one beyond its interval.
void add_loss(const Series& series, const Estimate& share, Clauses& clauses) {
  if (series.kind != Kind::kWeak || !(share.high < 1)) return;
  std::string text = loss_sentence(series);
  if (!text.empty())
    clauses.push_back(
        clause_of("scaling", std::move(text), {&series.base(), &series.top()},
                  "/time/iteration, /time/compute, /time/exposed",
                  fmt::format("{}, {}, {} images per rank; differences of medians",
                              series.top().run().model, series.top().run().mode, series.batch)));
}

VerdictClause comparison(const Series& weak, double weak_share, const Series& strong,
                         double strong_share) {
  const bool strong_better = strong_share > weak_share;
  return clause_of(
      "scaling",
      fmt::format(
          "{} scaling keeps more of its efficiency here than {} scaling: {} against {} at {}",
          strong_better ? "strong" : "weak", strong_better ? "weak" : "strong",
          percent_text(std::max(weak_share, strong_share)),
          percent_text(std::min(weak_share, strong_share)), ranks_text(weak.top().ranks())),
      {&weak.top(), &strong.top()}, "/time/iteration",
      fmt::format("{} images per rank (weak), {} in all (strong)", weak.batch, strong.batch));
}

std::string rank_list(const Series& series) {
  std::string text;
  for (const MeasuredCell* cell : series.cells)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", cell->ranks());
  return text;
}

/// What to run to see the other kind of scaling.
VerdictClause other_kind(const Series& have) {
  const bool weak = have.kind == Kind::kWeak;
  return missing_clause(
      "scaling",
      fmt::format("{} scaling was not measured for {}: run gradsync-train {} {} on {} ranks",
                  weak ? "strong" : "weak", have.base().run().model,
                  weak ? "--batch-global" : "--batch-per-rank",
                  weak ? have.base().run().batch_global : have.base().batch_per_rank(),
                  rank_list(have)));
}

void add_family(const Cells& family, Clauses& clauses) {
  const auto weak = best_series(family, Kind::kWeak);
  const auto strong = best_series(family, Kind::kStrong);
  double shares[2] = {kNotMeasured, kNotMeasured};
  for (const auto* series : {&weak, &strong}) {
    if (!*series) continue;
    const Estimate share = efficiency(**series);
    shares[series == &strong ? 1 : 0] = share.value;
    clauses.push_back(clause_for(**series, share));
    add_loss(**series, share, clauses);
  }
  if (weak && strong && weak->top().ranks() == strong->top().ranks() && shares[0] != shares[1])
    clauses.push_back(comparison(*weak, shares[0], *strong, shares[1]));
  if (weak && !strong) clauses.push_back(other_kind(*weak));
  if (strong && !weak) clauses.push_back(other_kind(*strong));
}

}  // namespace

Clauses scaling_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const Cells& family : focus(input))
    add_family(family, clauses);
  return clauses;
}

}  // namespace gradsync::report
