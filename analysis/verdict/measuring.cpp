#include <cmath>

#include <fmt/format.h>

#include "analysis/verdict/clauses.h"

namespace gradsync::report {

namespace {

/// Wall time of an iteration in each round's window of a kind: of its slowest rank.
std::vector<double> window_times(const MeasuredCell& cell, std::string_view kind) {
  std::vector<double> times;
  for (const Run* run : cell.group.repeats)
    for (const WindowRow& window : run->reader->windows()) {
      if (window.kind != kind) continue;
      double slowest = kNotMeasured;
      for (const RankWindow& rank : window.ranks)
        slowest = std::fmax(slowest, rank.iteration_s);
      times.push_back(slowest);
    }
  return times;
}

std::string sentence(const Estimate& ratio) {
  const std::string number = fmt::format("{:.3f} times the step without it", ratio.value);
  if (!std::isfinite(ratio.low))
    return fmt::format("with measuring a step takes {}; {} rounds are too few for an interval",
                       number, ratio.count);
  const std::string interval = fmt::format(" ({:.3f} to {:.3f})", ratio.low, ratio.high);
  if (ratio.low <= 1 && ratio.high >= 1)
    return fmt::format("measuring cost nothing that shows: {}{}", number, interval);
  return fmt::format("measuring changed the step: {}{}", number, interval);
}

}  // namespace

Clauses measuring_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const MeasuredCell& cell : input.cells) {
    const auto with = window_times(cell, "overlapped");
    const auto without = window_times(cell, "overlapped-unmeasured");
    const Estimate ratio = ratio_estimate(with, without, kVerdictSeed);
    if (!std::isfinite(ratio.value)) continue;
    clauses.push_back(
        clause_of("measuring", sentence(ratio), {&cell}, "/counterfactual",
                  cell.name + fmt::format("; {} rounds, seed {}", ratio.count, kVerdictSeed)));
  }
  if (clauses.empty() && !input.cells.empty())
    clauses.push_back(missing_clause(
        "measuring",
        "what measuring costs was not measured: run gradsync-train with --counterfactual"));
  return clauses;
}

}  // namespace gradsync::report
