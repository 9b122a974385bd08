// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include <fmt/format.h>

#include "analysis/verdict/clauses.h"
#include "base/parse.h"

namespace gradsync::report {

namespace {

/// What is neither compute nor communication is named from this part of the loss on.
constexpr double kRestOfLossNamed = 0.05;

constexpr Estimate kWhole = {1, 1, 1, 1};  ///< an efficiency of 1

/// Where the runs do not show the spread: that of equal starts on an idle machine
/// (docs/numbers.md).
const RunSpread& at_least_usual(const RunSpread& spread) {
  static const RunSpread usual{1.1, ""};
  return spread.known() ? spread : usual;
}

/// Cells of one family that differ in ranks alone: at one batch per rank (weak) or in all (strong).
struct Series {
  Scaling kind = Scaling::kWeak;
  std::int64_t batch = 0;
  Cells cells;  ///< by ranks, at least two
  const StudyCell& base() const { return *cells.front(); }
  const StudyCell& top() const { return *cells.back(); }
};

std::int64_t batch_of(const StudyCell& cell, Scaling kind) {
  return kind == Scaling::kWeak ? cell.run().batch_per_rank : cell.run().batch_global;
}

Cells with_batch(const Cells& family, Scaling kind, std::int64_t batch) {
  Cells cells;
  for (const StudyCell* cell : family) {
    const bool known = std::ranges::any_of(
        cells, [&](const auto* one) { return one->run().ranks == cell->run().ranks; });
    if (batch_of(*cell, kind) == batch && std::isfinite(cell->medians.iteration_s) && !known)
      cells.push_back(cell);
  }
  std::ranges::stable_sort(
      cells, [](const auto* a, const auto* b) { return a->run().ranks < b->run().ranks; });
  return cells;
}

/// The series of a kind with most ranks on top, then most cells, then the largest batch.
std::optional<Series> best_series(const Cells& family, Scaling kind) {
  std::optional<Series> best;
  const auto weight = [](const Series& series) {
    return std::make_tuple(series.top().run().ranks, series.cells.size(), series.batch);
  };
  for (const StudyCell* member : family) {
    const std::int64_t batch = batch_of(*member, kind);
    Series series{kind, batch, with_batch(family, kind, batch)};
    if (batch <= 0 || series.cells.size() < 2) continue;
    if (!best || weight(series) > weight(*best)) best = std::move(series);
  }
  return best;
}

double ideal_part(const Series& series) {
  return series.kind == Scaling::kWeak ? 1.0
                                       : static_cast<double>(series.base().run().ranks) /
                                             static_cast<double>(series.top().run().ranks);
}

/// E = T(base)/T(n) for weak scaling, times base/n for strong scaling.
Estimate efficiency_of(const Series& series) {
  Estimate share = time_ratio(series.base().group, series.top().group).estimate();
  const double factor = ideal_part(series);
  share.value *= factor;
  share.low *= factor;
  share.high *= factor;
  return share;
}

/// What is said of an efficiency above 100 %, which may be no more than chance.
std::string super_linear_text(const Estimate& share) {
  constexpr double kRoundedUp = 1 + 1e-9;
  if (!(share.value > kRoundedUp)) return {};
  if (!share.has_interval()) return ", above 100 %, which was not tested";
  return share.low > 1 ? ", super-linear" : ", super-linear but not beyond its interval";
}

/// "ddp at 1 rank".
std::string base_text(const Series& series) {
  return fmt::format("{} at {}", series.base().run().mode,
                     count_text(series.base().run().ranks, "rank"));
}

std::string sentence_of(const Series& series, const Estimate& share) {
  return fmt::format("{} scaling of {} ({}): efficiency {}{} at {} against {}{}",
                     scaling_name(series.kind), series.top().run().mode,
                     series.kind == Scaling::kWeak ? count_text(series.batch, "image") + " per rank"
                                                   : fmt::format("global batch {}", series.batch),
                     percent_text(share.value), interval_text(share),
                     count_text(series.top().run().ranks, "rank"), base_text(series),
                     super_linear_text(share));
}

VerdictClause clause_for(const Series& series, const Estimate& share) {
  return clause_of(
      series.kind == Scaling::kWeak ? "scaling.weak" : "scaling.strong", sentence_of(series, share),
      {&series.base(), &series.top()}, "/time/iteration",
      fmt::format("{}, {}; ratio of median iterations of the slowest rank, 95 % interval over "
                  "the starts",
                  series.top().run().model, series.top().run().mode));
}

/// Time by which an iteration is longer than with an efficiency of 1, and what it consists of.
struct Loss {
  double all_s, compute_s, exposed_s;
};

Loss loss_of(const Series& series) {
  const StudyCell &base = series.base(), &top = series.top();
  const double ideal = ideal_part(series);
  return {top.medians.iteration_s - ideal * base.medians.iteration_s,
          top.medians.compute_s - ideal * base.medians.compute_s,
          top.medians.exposed_s - ideal * base.medians.exposed_s};
}

/// "8 ms (80 %) of that are compute, …"; where a part fell, or is more than the whole, the parts
/// are no shares of it.
std::string loss_parts_text(const Loss& loss) {
  const auto is_part = [&](double time_s) { return time_s >= 0 && time_s <= loss.all_s; };
  const double rest_s = loss.all_s - loss.compute_s - loss.exposed_s;
  if (!is_part(loss.compute_s) || !is_part(loss.exposed_s) || rest_s < -kWorthSaying * loss.all_s) {
    const auto change = [](const char* what, double time_s) {
      return fmt::format("{} takes {} {}", what, format_duration(std::abs(time_s)),
                         time_s < 0 ? "less" : "more");
    };
    return fmt::format("{}, {}, so neither is a share of it", change("compute", loss.compute_s),
                       change("exposed communication", loss.exposed_s));
  }
  const auto part = [&](double time_s) {
    return fmt::format("{} ({})", format_duration(time_s), percent_text(time_s / loss.all_s));
  };
  return fmt::format("{} of that are compute, {} exposed communication{}", part(loss.compute_s),
                     part(loss.exposed_s),
                     rest_s >= kRestOfLossNamed * loss.all_s
                         ? fmt::format(", {} neither", part(rest_s))
                         : std::string());
}

std::string loss_text(const Series& series, const Loss& loss) {
  const std::string base = count_text(series.base().run().ranks, "rank");
  const std::string ideal =
      series.kind == Scaling::kWeak
          ? "at " + base
          : fmt::format("{}/{} of an iteration at {}", series.base().run().ranks,
                        series.top().run().ranks, base);
  return fmt::format("an iteration of {} at {} takes {} longer than {}: {}",
                     series.top().run().mode, count_text(series.top().run().ranks, "rank"),
                     format_duration(loss.all_s), ideal, loss_parts_text(loss));
}

std::size_t most_on_a_host(const StudyCell& cell) {
  std::map<std::string, std::size_t> hosts;
  std::size_t most = 0;
  for (const RankPlace& place : cell.run().reader->info().topology)
    if (has_known_host(place)) most = std::max(most, ++hosts[place.host]);
  return most;
}

/// Whether more ranks of a host, each with as many images, are slower because they compute longer,
/// by more than runs of the same work differ.
bool slows_on_host(const Series& series, const Estimate& share, const Loss& loss,
                   const RunSpread& spread) {
  return series.kind == Scaling::kWeak && loss.compute_s >= kMainCause * loss.all_s &&
         is_below(share, kWhole, spread) &&
         most_on_a_host(series.top()) > most_on_a_host(series.base());
}

/// Only where the efficiency is below one by more than chance.
void add_loss(const Series& series, const Estimate& share, const RunSpread& spread,
              Clauses& clauses) {
  const Loss loss = loss_of(series);
  if (!is_below(share, kWhole, at_least_usual(spread)) || !(loss.all_s > 0) ||
      !std::isfinite(loss.compute_s + loss.exposed_s))
    return;
  const auto add = [&](const char* sentence, std::string text) {
    clauses.push_back(
        clause_of(sentence, std::move(text), {&series.base(), &series.top()},
                  "/time/iteration, /time/compute, /time/exposed",
                  fmt::format("{}, {}, {} {}; differences of medians", series.top().run().model,
                              series.top().run().mode, count_text(series.batch, "image"),
                              series.kind == Scaling::kWeak ? "per rank" : "in all")));
  };
  add("scaling.growth", loss_text(series, loss));
  if (slows_on_host(series, share, loss, spread))
    add("scaling.shared-host",
        fmt::format(
            "compute itself takes longer where more ranks run on a host, and that is {} of "
            "the loss: it points to cores, caches, memory or power they share",
            loss.compute_s > loss.all_s ? "all" : percent_text(loss.compute_s / loss.all_s)));
}

VerdictClause comparison(const Series& weak, double weak_share, const Series& strong,
                         double strong_share) {
  const bool strong_better = strong_share > weak_share;
  return clause_of(
      "scaling.kinds",
      fmt::format(
          "{} scaling keeps more of its efficiency here than {} scaling: {} against {} at {}",
          strong_better ? "strong" : "weak", strong_better ? "weak" : "strong",
          percent_text(std::max(weak_share, strong_share)),
          percent_text(std::min(weak_share, strong_share)),
          count_text(weak.top().run().ranks, "rank")),
      {&weak.top(), &strong.top()}, "/time/iteration",
      fmt::format("{} per rank (weak), {} in all (strong)", count_text(weak.batch, "image"),
                  strong.batch));
}

std::string rank_list(const Series& series) {
  std::string text;
  for (const StudyCell* cell : series.cells)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", cell->run().ranks);
  return text;
}

/// What to run to see the other kind of scaling.
VerdictClause other_kind(const Series& have) {
  const bool weak = have.kind == Scaling::kWeak;
  const Run& run = have.base().run();
  const std::string how =
      is_traced(run.reader->info())
          ? fmt::format("record traces with a {}", weak ? "global batch of" : "batch per rank of")
          : fmt::format("run gradsync-train --model {} --sync {} {}", run.model, run.mode,
                        weak ? "--batch-global" : "--batch-per-rank");
  return missing_clause(
      "scaling.missing",
      fmt::format("{} scaling was not measured: {} {} on {} ranks", weak ? "strong" : "weak", how,
                  weak ? run.batch_global : run.batch_per_rank, rank_list(have)),
      run.model);
}

/// Whether cells of the same model and mode have it, those short of cores included.
bool was_run(const VerdictInput& input, const Series& like, Scaling kind) {
  Cells all;
  for (const StudyCell& cell : input.cells)
    if (cell.run().model == like.base().run().model && cell.run().mode == like.base().run().mode)
      all.push_back(&cell);
  return best_series(all, kind).has_value();
}

/// Says of an efficiency above 1, by more than chance, what it is not.
void add_above_100(const Series& series, const Estimate& share, const RunSpread& spread,
                   Clauses& clauses) {
  if (!is_below(kWhole, share, at_least_usual(spread))) return;
  clauses.push_back(clause_of(
      "scaling.above-100",
      fmt::format("an efficiency above 100 % ({} at {}) is not a gain of communication: check "
                  "caches, clocks, the base run, and the spread between runs of the same work",
                  percent_text(share.value), count_text(series.top().run().ranks, "rank")),
      {&series.base(), &series.top()}, "/time/iteration",
      fmt::format("{} scaling, {} {}", scaling_name(series.kind), count_text(series.batch, "image"),
                  series.kind == Scaling::kWeak ? "per rank" : "in all")));
}

Estimate add_series(const Series& series, const RunSpread& spread, Clauses& clauses) {
  const Estimate share = efficiency_of(series);
  clauses.push_back(clause_for(series, share));
  add_above_100(series, share, spread, clauses);
  add_loss(series, share, spread, clauses);
  return share;
}

void add_family(const VerdictInput& input, const Cells& family, Clauses& clauses) {
  const auto weak = best_series(family, Scaling::kWeak);
  const auto strong = best_series(family, Scaling::kStrong);
  const RunSpread& spread = input.spreads.at(family.front()->run().model);
  Estimate weak_share, strong_share;
  if (weak) weak_share = add_series(*weak, spread, clauses);
  if (strong) strong_share = add_series(*strong, spread, clauses);
  if (weak && strong && weak->top().run().ranks == strong->top().run().ranks &&
      (is_below(weak_share, strong_share, spread) || is_below(strong_share, weak_share, spread)))
    clauses.push_back(comparison(*weak, weak_share.value, *strong, strong_share.value));
  if (weak && !strong && !was_run(input, *weak, Scaling::kStrong))
    clauses.push_back(other_kind(*weak));
  if (strong && !weak && !was_run(input, *strong, Scaling::kWeak))
    clauses.push_back(other_kind(*strong));
}

}  // namespace

Clauses scaling_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const auto& [family, top] : focus(input))
    add_family(input, family, clauses);
  return clauses;
}

}  // namespace gradsync::report
