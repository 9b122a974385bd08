#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/verdict/clauses.h"
#include "options/modes.h"

namespace gradsync::report {

namespace {

/// An iteration is bound by what takes this part of it; below that the share says more than a name.
constexpr double kBound = 0.8;

/// What is neither compute nor communication is named from this part of an iteration on.
constexpr double kRestNamed = 0.05;

struct Part {
  const char* name;
  double share;
};

/// "; 43 % is neither: 40 % waiting for data, 3.0 % other", the largest part first; empty where
/// there is less of it than kRestNamed.
std::string rest_text(const MeasuredCell& cell) {
  const double rest = 1 - cell.exposed_share - cell.compute_share;
  if (!(rest >= kRestNamed)) return {};
  const auto known = [](double share) { return std::isfinite(share) ? share : 0; };
  const double wait = std::min(known(cell.wait_share), rest);
  const double data = std::min(known(cell.data_share), rest - wait);
  std::vector<Part> parts = {
      {"waiting for late ranks", wait}, {"waiting for data", data}, {"other", rest - wait - data}};
  std::erase_if(parts, [](const Part& part) { return part.share < kWorthSaying; });
  std::ranges::stable_sort(parts, std::greater(), &Part::share);
  std::vector<std::string> texts;
  for (const Part& part : parts)
    texts.push_back(fmt::format("{} {}", percent_text(part.share), part.name));
  return fmt::format("; {} is neither: {}", percent_text(rest), fmt::join(texts, ", "));
}

std::string parts_text(const MeasuredCell& cell) {
  return fmt::format("{} of the iteration is exposed communication, {} compute{}",
                     percent_text(cell.exposed_share), percent_text(cell.compute_share),
                     rest_text(cell));
}

VerdictClause bound_clause_for(const MeasuredCell& cell) {
  const double exposed = cell.exposed_share;
  const std::string where = setting_text(cell);
  const auto clause = [&](const char* sentence, std::string text) {
    return clause_of(sentence, std::move(text), {&cell},
                     "/time/exposed, /time/compute, /time/wait, /time/data, /time/iteration",
                     cell.name + "; means over the iterations after warm-up and the ranks");
  };
  if (exposed >= kBound)
    return clause("bound.communication",
                  fmt::format("{} is communication-bound: {}", where, parts_text(cell)));
  if (cell.compute_share >= kBound)
    return clause("bound.compute", fmt::format("{} is compute-bound: {}", where, parts_text(cell)));
  return clause(
      "bound.share",
      fmt::format("{}: {}; without waiting for gradients an iteration would take {} of its "
                  "time",
                  where, parts_text(cell), percent_text(1 - exposed)));
}

bool several_ranks_short_of_cores(const VerdictInput& input, const std::string& model) {
  return std::any_of(input.cells.begin(), input.cells.end(), [&](const MeasuredCell& cell) {
    return cell.run().model == model && cell.short_of_cores && cell.ranks() > 1;
  });
}

}  // namespace

Clauses bound_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const Cells& family : focus(input)) {
    const std::string& model = family.front()->run().model;
    Cells top = on_most_ranks(family);
    std::erase_if(top, [](const MeasuredCell* cell) {
      return !std::isfinite(cell->exposed_share) || !std::isfinite(cell->compute_share);
    });
    const bool traced = is_traced(family.front()->run().reader->info());
    if (top.empty() && traced)
      std::copy_if(family.begin(), family.end(), std::back_inserter(top),
                   [](const MeasuredCell* cell) {
                     return mode_named(cell->run().mode).exchanges &&
                            std::isfinite(cell->exposed_share + cell->compute_share);
                   });
    if (top.size() > 2) top = {top.front(), top.back()};
    // Two cells that differ only in what is learned would get two sentences of the same.
    if (top.size() == 2 && setting_text(*top[0]) == setting_text(*top[1])) top.pop_back();
    for (const MeasuredCell* cell : top)
      clauses.push_back(bound_clause_for(*cell));
    if (!top.empty() || !on_most_ranks(family).empty()) continue;
    if (traced)
      clauses.push_back(missing_clause(
          "bound.missing",
          "no trace of a job on several ranks, so communication was not measured; record one with "
          "torch.profiler",
          model));
    else if (!several_ranks_short_of_cores(input, model))
      clauses.push_back(missing_clause(
          "bound.missing",
          fmt::format("no run on several ranks, so communication was not measured; run mpirun -n 2 "
                      "gradsync-train --model {} --sync ddp",
                      model),
          model));
  }
  return clauses;
}

}  // namespace gradsync::report
