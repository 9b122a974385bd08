#include <cmath>

#include <fmt/format.h>

#include "analysis/verdict/clauses.h"

namespace gradsync::report {

namespace {

/// A step is bound by what takes more than half of it.
constexpr double kBound = 0.5;

std::string bound_word(double exposed, double compute) {
  if (exposed > kBound) return "communication-bound";
  if (compute > kBound) return "compute-bound";
  return 1 - exposed - compute > kBound ? "bound by neither compute nor communication"
                                        : "bound by no single part";
}

std::string sentence(const MeasuredCell& cell) {
  const double exposed = cell.exposed_share(), compute = cell.compute_share();
  return fmt::format(
      "{} at {} with {} images per rank: {} of the step is exposed communication, {} compute",
      bound_word(exposed, compute), ranks_text(cell.ranks()), cell.batch_per_rank(),
      percent_text(exposed), percent_text(compute));
}

}  // namespace

Clauses bound_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const Cells& family : focus(input)) {
    Cells top = on_most_ranks(family);
    std::erase_if(top, [](const MeasuredCell* cell) {
      return !std::isfinite(cell->exposed_share()) || !std::isfinite(cell->compute_share());
    });
    if (top.size() > 2) top = {top.front(), top.back()};
    for (const MeasuredCell* cell : top)
      clauses.push_back(clause_of("bound", sentence(*cell), {cell},
                                  "/time/exposed, /time/compute, /time/iteration",
                                  cell->name + "; medians of the iterations after warm-up"));
    if (on_most_ranks(family).empty())
      clauses.push_back(missing_clause(
          "bound",
          fmt::format("{}: no run on several ranks, so nothing is said about "
                      "communication; run mpirun -n 2 gradsync-train --model {} --sync ddp",
                      family.front()->run().model, family.front()->run().model)));
  }
  return clauses;
}

}  // namespace gradsync::report
