#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/traffic_figures.h"
#include "analysis/verdict/clauses.h"
#include "base/parse.h"

namespace gradsync::report {

namespace {

using Bytes = std::array<double, kRowCategories>;

/// All iterations but the first, which rebuilds buckets.
SteadyRows after_the_first(const RunReader& run) {
  SteadyRows rows;
  rows.warmup.assign(run.iterations(), false);
  rows.first = rows.by_rule = std::min<std::size_t>(1, run.iterations());
  return rows;
}

/// Mean bytes an iteration of the busiest rank.
Bytes busiest_rank(RunReader& run) {
  Bytes most{};
  double most_total = -1;
  for (const TrafficFigures& rank : traffic_figures(run, after_the_first(run)))
    if (rank.total() > most_total) most = rank.bytes, most_total = rank.total();
  return most;
}

std::string others(const Bytes& bytes, double total) {
  std::string text;
  for (std::size_t category = 1; category < kRowCategories; ++category)
    if (bytes[category] > 0)
      text += fmt::format("{}{} {} ({})", text.empty() ? "" : ", ", kTrafficNames[category],
                          format_bytes(std::llround(bytes[category])),
                          percent_text(bytes[category] / total));
  return text;
}

double total_of(const Bytes& bytes) {
  double total = 0;
  for (const double one : bytes)
    total += one;
  return total;
}

VerdictClause wire_clause_for(const MeasuredCell& cell, const Bytes& bytes) {
  const double total = total_of(bytes);
  const std::string rest = others(bytes, total);
  return clause_of(
      rest.empty() ? "wire.gradients" : "wire.others",
      fmt::format("gradients are {} of the {} that cross a rank's link in an iteration; {}",
                  percent_text(bytes[0] / total), format_bytes(std::llround(total)),
                  rest.empty() ? "nothing else crosses it" : "besides them: " + rest),
      {&cell}, "/traffic",
      cell.name +
          "; mean of the busiest rank, by the formulas of docs/numbers.md, the first "
          "iteration left out");
}

}  // namespace

Clauses wire_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const Cells& family : focus(input)) {
    const Cells top = on_most_ranks(family);
    if (top.empty() || top.front()->run().reader->iterations() < 2) continue;
    const MeasuredCell& cell = *top.front();
    const Bytes bytes = busiest_rank(*cell.run().reader);
    if (total_of(bytes) > 0) clauses.push_back(wire_clause_for(cell, bytes));
  }
  return clauses;
}

}  // namespace gradsync::report
