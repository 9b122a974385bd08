// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/bandwidth.h"
#include "analysis/read/columns.h"
#include "analysis/verdict/clauses.h"
#include "base/parse.h"

namespace gradsync::report {

namespace {

struct LinkCost {
  double latency_s = 0, transfer_s = 0, bytes = 0;
  std::size_t messages = 0;
  bool limited_by_latency() const { return latency_s > transfer_s; }
};

LinkCost cost_of(const FamilyFit& fit, const StudyCell& cell) {
  LinkCost cost;
  for (const BucketMessage& message : cell.profile.messages) {
    const LawFactors factors = law_factors(message.kind, cell.ranks);
    const TwoTermFit& law = fit.effective.at(message.kind);
    cost.latency_s += law.first * factors.steps;
    cost.transfer_s += law.second * factors.share * message.bytes;
    cost.bytes += factors.share * message.bytes;
    ++cost.messages;
  }
  return cost;
}

std::string sentence_of(const LinkCost& cost, double exposed_share) {
  return fmt::format(
      "{} limits communication: of the {} of an iteration, latency takes {} and bytes {} "
      "({:.3g} GB/s); {} of the iteration is exposed communication",
      cost.limited_by_latency() ? "latency" : "bandwidth", count_text(cost.messages, "message"),
      format_duration(cost.latency_s), format_duration(cost.transfer_s),
      1e-9 * cost.bytes / cost.transfer_s, percent_text(exposed_share));
}

std::string law_text(const FamilyFit& fit) {
  std::string text;
  for (const auto& [kind, law] : fit.laws)
    text += fmt::format("; law of {}: {}, {}, residual {}", collective_name(kind), law.source,
                        count_text(law.fit.points, "point"), percent_text(law.fit.relative_rms()));
  return text;
}

}  // namespace

Clauses link_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const auto& [family, top] : focus(input)) {
    if (top.empty()) continue;
    const StudyCell& cell = *top.front();
    if (!cell.exchanges() || cell.profile.messages.empty()) continue;
    const FamilyFit fit = fit_family(family, calibration_of(input.cells));
    const std::string why = law_doubt(fit);
    if (!why.empty()) {
      clauses.push_back(missing_clause(
          "link.missing",
          fmt::format("whether latency or bandwidth limits communication is unknown: {}", why),
          cell.model));
      continue;
    }
    const LinkCost cost = cost_of(fit, cell);
    if (!std::isfinite(cost.latency_s + cost.transfer_s)) continue;
    clauses.push_back(clause_of(cost.limited_by_latency() ? "link.latency" : "link.bandwidth",
                                sentence_of(cost, cell.exposed_share), family,
                                "/calibration, /bucket", cell.name + law_text(fit)));
  }
  return clauses;
}

namespace {

/// All iterations but the first, which rebuilds buckets.
SteadyRows after_the_first(const RunReader& run) {
  SteadyRows rows;
  rows.warmup.assign(run.iterations(), false);
  rows.first = rows.by_rule = std::min<std::size_t>(1, run.iterations());
  return rows;
}

/// The rank through whose link most bytes pass.
TrafficFigures busiest_rank(RunReader& run) {
  TrafficFigures most;
  for (const TrafficFigures& rank : traffic_figures(run, after_the_first(run)))
    if (rank.total() > most.total()) most = rank;
  return most;
}

std::string others(const TrafficFigures& traffic) {
  std::string text;
  for (std::size_t category = 1; category < kRowCategories; ++category)
    if (const double bytes = traffic.bytes[category]; bytes > 0)
      text += fmt::format("{}{} {} ({})", text.empty() ? "" : ", ", kTrafficNames[category],
                          format_bytes(std::llround(bytes)), percent_text(bytes / traffic.total()));
  return text;
}

}  // namespace

/// What crosses the link besides gradients, where that is not next to nothing.
Clauses wire_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const auto& [family, top] : focus(input)) {
    if (top.empty() || top.front()->run().reader->iterations() < 2) continue;
    const StudyCell& cell = *top.front();
    const TrafficFigures traffic = busiest_rank(*cell.run().reader);
    const double gradients = traffic.bytes.front(), total = traffic.total();
    if (!(total - gradients >= kWorthSaying * total) || !(total > 0)) continue;
    clauses.push_back(clause_of(
        "wire.others",
        fmt::format("gradients are {} of the {} that cross a rank's link in an iteration; besides "
                    "them: {}",
                    percent_text(gradients / total), format_bytes(std::llround(total)),
                    others(traffic)),
        {&cell}, "/traffic",
        cell.name + "; mean of the busiest rank, by the formulas of docs/numbers.md, the first "
                    "iteration left out"));
  }
  return clauses;
}

namespace {

/// 16 bits for 32: what is saved is what still travels. It pays while that takes longer on the link
/// than converting values does: below link_bytes / convert_s.
std::string sentence_of(const StudyCell& cell, const SentFigures& narrowing) {
  const std::string wire = cell.run().reader->option("wire-dtype");
  return fmt::format(
      "{} saves {} of a rank's link an iteration and costs {:.2f} ms for converting values ({} of "
      "the iteration): it shortens the iteration where the link carries less than {}/s in the "
      "collective",
      wire, format_bytes(std::llround(narrowing.link_bytes)), 1e3 * narrowing.convert_s,
      percent_text(narrowing.convert_s / cell.medians.iteration_s),
      format_bytes(std::llround(narrowing.link_bytes / narrowing.convert_s)));
}

}  // namespace

/// None for runs whose gradients travel as they are, and of modes that turn them into something
/// else first.
Clauses narrowing_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const StudyCell& cell : input.cells) {
    if (cell.short_of_cores || cell.run().ranks < 2 || !mode_named(cell.mode).changes.empty() ||
        cell.run().reader->option("wire-dtype") == "fp32")
      continue;
    const SentFigures narrowing = sent_figures(cell.run());
    if (!(narrowing.convert_s > 0) || !(narrowing.link_bytes > 0)) continue;
    clauses.push_back(clause_of("narrowing.pays", sentence_of(cell, narrowing), {&cell},
                                "/time/convert, /traffic/gradients",
                                cell.name + "; saved bytes / time for converting, on one "
                                            "thread beside compute"));
  }
  return clauses;
}

}  // namespace gradsync::report
