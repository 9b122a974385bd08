#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "analysis/verdict/clauses.h"
#include "support/parse.h"

namespace gradsync::report {

namespace {

/// Cells that did the same work: of one model, on as many ranks, with one batch, and with all
/// options equal that change the time of an iteration and are not the mode's own.
using Contest = std::tuple<std::string, std::int64_t, std::int64_t, std::vector<std::string>>;

std::map<Contest, Cells> contests(const VerdictInput& input) {
  using enum OptionRole;
  const auto rest = options_of({kBetweenRanks, kStep});
  std::map<Contest, Cells> all;
  for (const MeasuredCell& cell : input.cells)
    if (cell.run().mode != "none" && cell.ranks() > 1 && std::isfinite(cell.median_iteration_s))
      all[{cell.run().model, cell.ranks(), cell.batch_per_rank(), option_values(cell.run(), rest)}]
          .push_back(&cell);
  return all;
}

/// "ddp"; with the settings where the same mode takes part twice.
std::string name_of(const MeasuredCell& cell, const Cells& among) {
  std::vector<const RunGroup*> same;
  for (const MeasuredCell* other : among)
    if (other->run().mode == cell.run().mode) same.push_back(&other->group);
  const std::string settings = settings_text(cell.run(), differing_options(same));
  return settings.empty() ? cell.run().mode : fmt::format("{} ({})", cell.run().mode, settings);
}

std::string sentence(const Cells& by_time) {
  const MeasuredCell &first = *by_time[0], &second = *by_time[1];
  const Estimate ratio = ratio_estimate(second.iteration_s, first.iteration_s, kVerdictSeed);
  const std::string head = fmt::format("at {} with {} images per rank ", ranks_text(first.ranks()),
                                       first.batch_per_rank());
  const std::string both =
      fmt::format("{} and {}", name_of(first, by_time), name_of(second, by_time));
  if (!std::isfinite(ratio.low))
    return head + fmt::format("{} took {} and {}; too few iterations to call one faster", both,
                              format_duration(first.median_iteration_s),
                              format_duration(second.median_iteration_s));
  if (!(ratio.low > 1))
    return head + fmt::format("{} cannot be told apart: {} and {} a step, ratio {:.3f} to {:.3f}",
                              both, format_duration(first.median_iteration_s),
                              format_duration(second.median_iteration_s), ratio.low, ratio.high);
  return head + fmt::format(
                    "{} is the fastest of {} modes: {} a step, {} next with {:.3f} times "
                    "that ({:.3f} to {:.3f})",
                    name_of(first, by_time), by_time.size(),
                    format_duration(first.median_iteration_s), name_of(second, by_time),
                    ratio.value, ratio.low, ratio.high);
}

/// The contest of a model on most ranks, then with most entries.
const Cells* main_contest(const std::map<Contest, Cells>& all, const std::string& model) {
  const Cells* best = nullptr;
  for (const auto& [key, cells] : all) {
    if (std::get<0>(key) != model || cells.size() < 2) continue;
    const auto weight = [](const Cells& one) {
      return std::make_pair(one.front()->ranks(), one.size());
    };
    if (!best || weight(cells) > weight(*best)) best = &cells;
  }
  return best;
}

}  // namespace

Clauses fastest_clauses(const VerdictInput& input) {
  Clauses clauses;
  const auto all = contests(input);
  for (const Cells& family : focus(input)) {
    const Cells* contest = main_contest(all, family.front()->run().model);
    if (!contest) continue;
    Cells by_time = *contest;
    std::stable_sort(by_time.begin(), by_time.end(), [](const auto* a, const auto* b) {
      return a->median_iteration_s < b->median_iteration_s;
    });
    clauses.push_back(clause_of(
        "fastest", sentence(by_time), by_time, "/time/iteration",
        fmt::format("{}; ratio of median iterations of the slowest rank, 95 % bootstrap interval, "
                    "seed {}",
                    by_time[0]->run().model, kVerdictSeed)));
  }
  return clauses;
}

}  // namespace gradsync::report
