#include <fmt/format.h>

#include "analysis/verdict/clauses.h"

namespace gradsync::report {

namespace {

/// Runs of the same work that differ by less are not worth a sentence.
constexpr double kWide = 1.1;

}  // namespace

/// How far runs of the same work differ, where that is far.
Clauses spread_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const auto& [model, spread] : input.spreads) {
    if (!(spread.factor >= kWide)) continue;
    Cells cells;
    for (const MeasuredCell& cell : input.cells)
      if (cell.run().model == model) cells.push_back(&cell);
    clauses.push_back(
        clause_of("spread.wide", spread_text(spread, model) + "; smaller differences are noise",
                  cells, "/time/iteration", model + "; largest over smallest median iteration"));
  }
  return clauses;
}

}  // namespace gradsync::report
