#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/verdict/clauses.h"
#include "base/parse.h"

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

struct Measured {
  const MeasuredCell* cell;
  Estimate ratio;  ///< of an iteration with measuring to one without
};

std::vector<Measured> measured_cells_of(const VerdictInput& input) {
  std::vector<Measured> all;
  for (const MeasuredCell& cell : input.cells) {
    const Estimate ratio =
        ratio_estimate(window_times(cell, "overlapped"),
                       window_times(cell, "overlapped-unmeasured"), kVerdictSeed);
    if (std::isfinite(ratio.value)) all.push_back({&cell, ratio});
  }
  return all;
}

VerdictClause measuring_clause_for(const Measured& one) {
  const Estimate& ratio = one.ratio;
  const bool free = ratio.holds(1);
  return clause_of(
      free ? "measuring.free" : "measuring.changed",
      fmt::format(
          "measuring {}: an iteration takes {:.3f} times the iteration without it ({:.3f} to "
          "{:.3f})",
          free ? "cost nothing that shows" : "changed the iteration", ratio.value, ratio.low,
          ratio.high),
      {one.cell}, "/counterfactual",
      one.cell->name + fmt::format("; {} rounds, seed {}", ratio.count, kVerdictSeed));
}

/// Of cells with too few rounds for an interval, in one sentence.
VerdictClause few_rounds(const std::vector<Measured>& cells) {
  Cells named;
  double least = kNotMeasured, most = kNotMeasured;
  std::size_t rounds = 0;
  for (const Measured& one : cells) {
    named.push_back(one.cell);
    least = std::fmin(least, one.ratio.value);
    most = std::fmax(most, one.ratio.value);
    rounds = std::max(rounds, one.ratio.count);
  }
  const std::string range = cells.size() == 1 ? fmt::format("{:.3f}", least)
                                              : fmt::format("{:.3f} to {:.3f}", least, most);
  return clause_of(
      "measuring.few",
      fmt::format("with measuring an iteration takes {} times the iteration without it in "
                  "{}; {} are too few to say whether measuring changes it",
                  range, count_text(cells.size(), "cell"), count_text(rounds, "round")),
      named, "/counterfactual", "ratio of medians of the windows");
}

}  // namespace

Clauses measuring_clauses(const VerdictInput& input) {
  Clauses clauses;
  std::vector<Measured> few;
  for (const Measured& one : measured_cells_of(input))
    if (one.ratio.has_interval())
      clauses.push_back(measuring_clause_for(one));
    else
      few.push_back(one);
  if (!few.empty()) clauses.push_back(few_rounds(few));
  const bool all_traced =
      std::all_of(input.cells.begin(), input.cells.end(),
                  [](const MeasuredCell& cell) { return is_traced(cell.run().reader->info()); });
  if (clauses.empty() && !all_traced)
    clauses.push_back(missing_clause(
        "measuring.missing",
        "instrumentation overhead was not measured: run gradsync-train with --counterfactual"));
  return clauses;
}

}  // namespace gradsync::report
