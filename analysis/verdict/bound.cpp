// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "analysis/figures/utilization.h"
#include "analysis/verdict/clauses.h"
#include "options/modes.h"

namespace gradsync::report {

namespace {

/// An iteration is bound by what takes this part of it; below that the share says more than a name.
constexpr double kBound = 0.8;

std::string parts_text(const StudyCell& cell) {
  return fmt::format("{} of the iteration is exposed communication, {} compute",
                     percent_text(cell.exposed_share), percent_text(cell.compute_share));
}

VerdictClause clause_for(const StudyCell& cell) {
  const std::string where = setting_text(cell);
  const auto clause = [&](const char* sentence, std::string text) {
    return clause_of(sentence, std::move(text), {&cell},
                     "/time/exposed, /time/compute, /time/iteration",
                     cell.name + "; means over the iterations after warm-up and the ranks");
  };
  if (cell.exposed_share >= kBound)
    return clause("bound.communication",
                  fmt::format("{} is communication-bound: {}", where, parts_text(cell)));
  if (cell.compute_share >= kBound)
    return clause("bound.compute", fmt::format("{} is compute-bound: {}", where, parts_text(cell)));
  return clause("bound.share", fmt::format("{}: {}", where, parts_text(cell)));
}

}  // namespace

Clauses bound_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (auto& [family, top] : focus(input)) {
    std::erase_if(top, [](const StudyCell* cell) {
      return !std::isfinite(cell->exposed_share) || !std::isfinite(cell->compute_share);
    });
    if (top.empty() && is_traced(family.front()->run().reader->info()))
      std::copy_if(family.begin(), family.end(), std::back_inserter(top),
                   [](const StudyCell* cell) {
                     return mode_named(cell->run().mode).exchanges &&
                            std::isfinite(cell->exposed_share + cell->compute_share);
                   });
    if (top.size() > 2) top = {top.front(), top.back()};
    // Two cells that differ only in what is learned would get two sentences of the same.
    if (top.size() == 2 && setting_text(*top[0]) == setting_text(*top[1])) top.pop_back();
    for (const StudyCell* cell : top)
      clauses.push_back(clause_for(*cell));
  }
  return clauses;
}

namespace {

/// "3.5 % (mlp:1024x4, 200 B/kFLOP)".
std::string network_text(const std::string& figure, const StudyCell& cell) {
  const double bytes_per_kflop = 1e3 * network_cost(cell.run()).bytes_per_flop();
  return fmt::format("{} ({}{})", figure, cell.run().model,
                     std::isfinite(bytes_per_kflop)
                         ? fmt::format(", {:.3g} B/kFLOP", bytes_per_kflop)
                         : std::string());
}

/// The least and the largest of a figure of these cells; empty where one has none.
template <typename Figure, typename Text>
std::string range_text(const Cells& cells, Figure figure, Text text) {
  const auto [least, most] = std::ranges::minmax_element(
      cells, [&](const auto* a, const auto* b) { return figure(*a) < figure(*b); });
  const bool known =
      std::ranges::all_of(cells, [&](const StudyCell* one) { return std::isfinite(figure(*one)); });
  return known ? fmt::format("from {} to {}", network_text(text(**least), **least),
                             network_text(text(**most), **most))
               : std::string();
}

}  // namespace

/// The least and the largest cost among networks in the same mode, on as many ranks and with the
/// same batch; without it, of exposed communication.
Clauses networks_clauses(const VerdictInput& input) {
  Cells cells;
  for (const auto& [family, top] : focus(input)) {
    if (top.empty() || !std::isfinite(top.front()->exposed_share)) continue;
    if (!cells.empty() && setting_text(*top.front()) != setting_text(*cells.front())) return {};
    cells.push_back(top.front());
  }
  if (cells.size() < 2) return {};
  const std::string of = fmt::format("{}, {} networks", setting_text(*cells.front()), cells.size());
  const std::string cost = range_text(
      cells, [&](const StudyCell& cell) { return cost_ratio(input, cell).value; },
      [&](const StudyCell& cell) { return ratio_text(cost_ratio(input, cell)); });
  const bool intervals = std::ranges::all_of(
      cells, [&](const StudyCell* one) { return cost_ratio(input, *one).has_interval(); });
  if (!cost.empty())
    return {
        clause_of("networks.cost",
                  fmt::format("an iteration of {}: {} times as long as without synchronization{}",
                              of, cost, intervals ? "" : "; what has one start has no interval"),
                  cells, "/time/iteration, /layer",
                  "of contenders of one job, or of median iterations of the slowest rank")};
  return {clause_of(
      "networks.exposed",
      fmt::format("exposed communication of {}: {} of the iteration", of,
                  range_text(
                      cells, [](const StudyCell& cell) { return cell.exposed_share; },
                      [](const StudyCell& cell) { return percent_text(cell.exposed_share); })),
      cells, "/time/exposed, /time/iteration, /layer",
      "means over the iterations after warm-up and the ranks")};
}

/// Says of the cell on most ranks of each model how much of their arithmetic the ranks use.
Clauses utilization_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const auto& [family, top] : focus(input)) {
    if (top.empty()) continue;
    const StudyCell& cell = *top.front();
    const Utilization mean = mean_of(utilization(cell.run(), kNotMeasured));
    if (!std::isfinite(mean.compute) || !std::isfinite(mean.of_probe)) continue;
    clauses.push_back(clause_of(
        "utilization.arithmetic",
        fmt::format("{}: the ranks compute in {} of the time; their arithmetic is {:.3g} GFLOP/s a "
                    "rank, {} of what a matrix product reaches on these ranks{}",
                    setting_text(cell), percent_text(mean.compute), 1e-9 * mean.flop_per_s,
                    percent_text(mean.of_probe),
                    mean.of_probe > 1 ? ", so the probe is not the most they can do" : ""),
        {&cell}, "/time, /layer, /probe/flop_per_s", cell.name + "; mean over the ranks"));
  }
  return clauses;
}

}  // namespace gradsync::report
