#include <cmath>

#include <fmt/format.h>

#include "analysis/verdict/clauses.h"
#include "support/parse.h"

namespace gradsync::report {

namespace {

std::string sentence(const MeasuredCell& small, const MeasuredCell& large) {
  const double before = large.exposed_share(), after = small.exposed_share();
  if (!(after > before))
    return fmt::format(
        "smaller batches do not expose more communication here: {} of the step at {} images per "
        "rank, {} at {}",
        percent_text(after), small.batch_per_rank(), percent_text(before), large.batch_per_rank());
  return fmt::format(
      "small batches scale badly because compute shrinks with the batch and the gradients do not: "
      "from {} to {} images per rank compute falls from {} to {}, exposed communication goes from "
      "{} to {} and its share of the step rises from {} to {}",
      large.batch_per_rank(), small.batch_per_rank(), format_duration(large.median_compute_s),
      format_duration(small.median_compute_s), format_duration(large.median_exposed_s),
      format_duration(small.median_exposed_s), percent_text(before), percent_text(after));
}

}  // namespace

Clauses small_batch_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const Cells& family : focus(input)) {
    Cells top = on_most_ranks(family);
    std::erase_if(top, [](const MeasuredCell* cell) {
      return cell->batch_per_rank() <= 0 || !std::isfinite(cell->exposed_share()) ||
             !std::isfinite(cell->median_compute_s);
    });
    if (top.size() < 2 || top.front()->batch_per_rank() == top.back()->batch_per_rank()) continue;
    clauses.push_back(clause_of(
        "batch", sentence(*top.front(), *top.back()), {top.front(), top.back()},
        "/time/compute, /time/exposed, /time/iteration",
        fmt::format("{}, {}, {}; medians of the iterations after warm-up", top.front()->run().model,
                    top.front()->run().mode, ranks_text(top.front()->ranks()))));
  }
  return clauses;
}

}  // namespace gradsync::report
