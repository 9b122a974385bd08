#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/utilization.h"
#include "analysis/verdict/clauses.h"

namespace gradsync::report {

namespace {

/// "3.5 % (mlp:1024x4, 200 B/kFLOP)".
std::string exposed_text(const MeasuredCell& cell) {
  const double bytes_per_kflop = 1e3 * network_cost(cell.run()).bytes_per_flop();
  return fmt::format("{} ({}{})", percent_text(cell.exposed_share), cell.run().model,
                     std::isfinite(bytes_per_kflop)
                         ? fmt::format(", {:.3g} B/kFLOP", bytes_per_kflop)
                         : std::string());
}

bool alike(const MeasuredCell& a, const MeasuredCell& b) {
  return setting_text(a) == setting_text(b);
}

}  // namespace

/// The least and the largest exposed communication among networks in the same mode, on as many
/// ranks and with the same batch.
Clauses networks_clauses(const VerdictInput& input) {
  Cells cells;
  for (const Cells& family : focus(input)) {
    const Cells top = on_most_ranks(family);
    if (top.empty() || !std::isfinite(top.front()->exposed_share)) continue;
    if (!cells.empty() && !alike(*top.front(), *cells.front())) return {};
    cells.push_back(top.front());
  }
  if (cells.size() < 2) return {};
  const auto [least, most] = std::minmax_element(
      cells.begin(), cells.end(),
      [](const auto* a, const auto* b) { return a->exposed_share < b->exposed_share; });
  return {clause_of(
      "networks.exposed",
      fmt::format("exposed communication of {}, {} networks: from {} to {} of the iteration",
                  setting_text(**least), cells.size(), exposed_text(**least), exposed_text(**most)),
      cells, "/time/exposed, /time/iteration, /layer",
      "means over the iterations after warm-up and the ranks")};
}

}  // namespace gradsync::report
