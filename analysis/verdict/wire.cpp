#include <array>
#include <cmath>

#include <fmt/format.h>

#include "analysis/metrics/columns.h"
#include "analysis/verdict/clauses.h"
#include "support/parse.h"
#include "timing/statistics.h"

namespace gradsync {

namespace {

using Bytes = std::array<double, kTrafficCategories>;

/// Mean bytes an iteration of the busiest rank, after the first iteration (which rebuilds buckets).
Bytes busiest_rank(RunReader& run) {
  Bytes most{};
  double most_total = -1;
  std::vector<Matrix> traffic;
  for (std::size_t category = 0; category < kTrafficCategories; ++category)
    traffic.push_back(run.traffic(static_cast<Traffic>(category)));
  for (std::size_t rank = 0; rank < run.ranks(); ++rank) {
    Bytes bytes{};
    double total = 0;
    for (std::size_t category = 0; category < kTrafficCategories; ++category) {
      bytes[category] =
          mean(rank_column(traffic[category], rank, [](std::size_t row) { return row > 0; }));
      total += bytes[category];
    }
    if (total > most_total) most = bytes, most_total = total;
  }
  return most;
}

std::string others(const Bytes& bytes, double total) {
  std::string text;
  for (std::size_t category = 1; category < kTrafficCategories; ++category)
    if (bytes[category] > 0)
      text += fmt::format("{}{} {} ({})", text.empty() ? "" : ", ", kTrafficNames[category],
                          format_bytes(std::llround(bytes[category])),
                          percent_text(bytes[category] / total));
  return text;
}

std::string sentence(const Bytes& bytes) {
  double total = 0;
  for (const double one : bytes)
    total += one;
  if (!(total > 0)) return {};
  const std::string rest = others(bytes, total);
  const std::string gradients =
      fmt::format("gradients are {} of the {} that cross a rank's link in a step",
                  percent_text(bytes[0] / total), format_bytes(std::llround(total)));
  return gradients + (rest.empty() ? "; nothing else crosses it" : "; besides them: " + rest);
}

}  // namespace

Clauses wire_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const Cells& family : focus(input)) {
    const Cells top = on_most_ranks(family);
    if (top.empty() || top.front()->run().reader->iterations() < 2) continue;
    const MeasuredCell& cell = *top.front();
    const std::string text = sentence(busiest_rank(*cell.run().reader));
    if (text.empty()) continue;
    clauses.push_back(clause_of("wire", text, {&cell}, "/traffic",
                                cell_text(cell) + "; mean of the busiest rank, by the formulas of "
                                                  "docs/numbers.md, the first iteration left out"));
  }
  return clauses;
}

}  // namespace gradsync
