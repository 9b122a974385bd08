#include <cmath>

#include <fmt/format.h>

#include "analysis/verdict/clauses.h"
#include "base/parse.h"

namespace gradsync::report {

namespace {

/// What a cell's messages cost by the law, in all.
struct LinkCost {
  double latency_s = 0, transfer_s = 0, bandwidth = kNotMeasured;
  std::size_t messages = 0;
  bool limited_by_latency() const { return latency_s > transfer_s; }
};

LinkCost link_cost(const FamilyFit& fit, const CellFacts& cell) {
  LinkCost cost;
  for (const BucketMessage& message : cell.profile.messages) {
    const LawFactors factors = law_factors(message.kind, cell.ranks);
    const TwoTermFit& law = fit.effective.at(message.kind);
    cost.latency_s += law.first * factors.steps;
    cost.transfer_s += law.second * factors.share * message.bytes;
    cost.bandwidth = 1e-9 / law.second;
    ++cost.messages;
  }
  return cost;
}

std::string link_sentence(const LinkCost& cost, double exposed_share) {
  const bool latency = cost.limited_by_latency();
  const char* remedy = latency ? "fewer, larger messages" : "fewer bytes";
  return fmt::format(
      "{} limits communication: of the {} of an iteration, latency takes {} and bytes on the link "
      "{} ({:.3g} GB/s); {}",
      latency ? "latency" : "the link's bandwidth", count_text(cost.messages, "message"),
      format_duration(cost.latency_s), format_duration(cost.transfer_s), cost.bandwidth,
      exposed_share >= kWorthSaying
          ? fmt::format("{} of the iteration is exposed, the most that {} could save",
                        percent_text(exposed_share), remedy)
          : fmt::format("{} of the iteration is exposed, so {} would not shorten it",
                        percent_text(exposed_share), remedy));
}

std::string law_text(const FamilyFit& fit) {
  std::string text;
  for (const auto& [kind, law] : fit.laws)
    text += fmt::format("; law of {}: {}, {} points, residual {}",
                        kCollectiveNames[static_cast<std::size_t>(kind)], law.source,
                        law.fit.points, percent_text(law.fit.relative_rms()));
  return text;
}

}  // namespace

Clauses link_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const Cells& family : focus(input)) {
    const Cells top = on_most_ranks(family);
    if (top.empty()) continue;
    const CellFacts& facts = facts_of(input, *top.front());
    if (!facts.exchanges() || facts.profile.messages.empty()) continue;
    const FamilyFit fit = fit_of(input, facts.family);
    const std::string why = law_doubt(fit);
    if (!why.empty()) {
      clauses.push_back(missing_clause(
          "link.missing",
          fmt::format("whether latency or bandwidth limits communication is unknown: {}", why),
          facts.model));
      continue;
    }
    const LinkCost cost = link_cost(fit, facts);
    if (!std::isfinite(cost.latency_s + cost.transfer_s)) continue;
    clauses.push_back(clause_of(cost.limited_by_latency() ? "link.latency" : "link.bandwidth",
                                link_sentence(cost, top.front()->exposed_share), family,
                                "/calibration, /bucket", top.front()->name + law_text(fit)));
  }
  return clauses;
}

}  // namespace gradsync::report
