#include "analysis/figures/utilization.h"

#include <cmath>

#include <fmt/format.h>

#include "analysis/verdict/clauses.h"

namespace gradsync::report {

namespace {

std::string ranks_text(const MeasuredCell& cell, const Utilization& mean) {
  std::string text = fmt::format("{}: the ranks compute in {} of the time", setting_text(cell),
                                 percent_text(mean.compute));
  if (std::isfinite(mean.link_busy))
    text += fmt::format(", the link is busy in {} of it", percent_text(mean.link_busy));
  return text;
}

}  // namespace

/// Of the cell on most ranks of each model: whether compute or the link is used to its end.
Clauses utilization_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const Cells& family : focus(input)) {
    const Cells top = on_most_ranks(family);
    if (top.empty()) continue;
    const MeasuredCell& cell = *top.front();
    const Utilization mean = mean_of(utilization(cell.run(), kNotMeasured));
    if (!std::isfinite(mean.compute)) continue;
    if (!std::isfinite(mean.of_probe)) {
      clauses.push_back(clause_of("utilization.ranks", ranks_text(cell, mean), {&cell},
                                  "/time/compute, /time/comm_busy, /time/iteration", cell.name));
      continue;
    }
    clauses.push_back(clause_of(
        "utilization.arithmetic",
        fmt::format("{}; their arithmetic is {:.3g} GFLOP/s a rank, {} of what a matrix product "
                    "reaches on these ranks{}",
                    ranks_text(cell, mean), 1e-9 * mean.flop_per_s, percent_text(mean.of_probe),
                    mean.of_probe > 1 ? ", so the probe is not the most they can do" : ""),
        {&cell}, "/time, /layer, /probe/flop_per_s", cell.name + "; mean over the ranks"));
  }
  return clauses;
}

}  // namespace gradsync::report
