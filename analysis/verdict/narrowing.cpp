#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/traffic_figures.h"
#include "analysis/read/columns.h"
#include "analysis/verdict/clauses.h"
#include "base/parse.h"

namespace gradsync::report {

namespace {

/// Means over steady iterations; the rank that spends most on it.
struct Narrowing {
  double convert_s = kNotMeasured;
  double link_bytes = 0;  ///< of gradients, through the link of a rank: as many were saved
};

Narrowing narrowing_of(const Run& run) {
  Narrowing result;
  const auto converts = rank_means(*run.reader, run.steady, phase_blocks(Phase::kConvert));
  for (const double convert_s : converts)
    result.convert_s = std::fmax(result.convert_s, convert_s);
  const auto gradients = static_cast<std::size_t>(Traffic::kGradients);
  for (const TrafficFigures& rank : traffic_figures(*run.reader, run.steady))
    result.link_bytes = std::max(result.link_bytes, rank.bytes[gradients]);
  return result;
}

/// 16 bits for 32: what is saved is what still travels. It pays while that takes longer on the link
/// than converting values does: below link_bytes / convert_s.
std::string narrowing_sentence(const MeasuredCell& cell, const Narrowing& narrowing) {
  const std::string wire = cell.run().reader->option("wire-dtype");
  return fmt::format(
      "{} saves {} of a rank's link an iteration and costs {:.2f} ms for converting values ({} of "
      "the iteration): it shortens the iteration where the link carries less than {}/s in the "
      "collective",
      wire, format_bytes(std::llround(narrowing.link_bytes)), 1e3 * narrowing.convert_s,
      percent_text(narrowing.convert_s / cell.median_iteration_s),
      format_bytes(std::llround(narrowing.link_bytes / narrowing.convert_s)));
}

}  // namespace

/// None for runs whose gradients travel as they are.
Clauses narrowing_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const MeasuredCell& cell : input.cells) {
    if (cell.short_of_cores || cell.ranks() < 2 ||
        cell.run().reader->option("wire-dtype") == "fp32")
      continue;
    const Narrowing narrowing = narrowing_of(cell.run());
    if (!(narrowing.convert_s > 0) || !(narrowing.link_bytes > 0)) continue;
    clauses.push_back(clause_of("narrowing.pays", narrowing_sentence(cell, narrowing), {&cell},
                                "/time/convert, /traffic/gradients",
                                cell.name + "; saved bytes / time for converting, on one "
                                            "thread beside compute"));
  }
  return clauses;
}

}  // namespace gradsync::report
