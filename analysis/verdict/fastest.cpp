#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "analysis/verdict/clauses.h"
#include "options/modes.h"
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
    if (!cell.short_of_cores && mode_named(cell.run().mode).exchanges && cell.ranks() > 1 &&
        std::isfinite(cell.median_iteration_s))
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

/// "3 modes", or "3 settings of ddp" where all are of one mode.
std::string number_of(const Cells& cells) {
  std::set<std::string> modes;
  for (const MeasuredCell* cell : cells)
    modes.insert(cell->run().mode);
  return modes.size() > 1 ? fmt::format("{} modes", modes.size())
                          : fmt::format("{} settings of {}", cells.size(), *modes.begin());
}

struct FastestAnswer {
  const char* sentence;
  std::string text;
};

FastestAnswer fastest_answer_for(const Cells& by_time, const RunSpread& spread) {
  const MeasuredCell &first = *by_time[0], &second = *by_time[1];
  const Estimate ratio = ratio_estimate(second.iteration_s, first.iteration_s, kVerdictSeed);
  const std::string one = name_of(first, by_time), other = name_of(second, by_time);
  const std::string where = fmt::format("at {} with {} images per rank",
                                        count_text(first.ranks(), "rank"), first.batch_per_rank());
  const std::string times = fmt::format("{} {} and {} took {} and {} an iteration", where, one,
                                        other, format_duration(first.median_iteration_s),
                                        format_duration(second.median_iteration_s));
  const std::string interval = fmt::format("{:.3f} to {:.3f}", ratio.low, ratio.high);
  const std::string_view word = spread_word(ratio, spread);
  if (word == "slower")
    return {"fastest.mode",
            fmt::format("{} {} is the fastest of {}: {} an iteration, {} next with {:.3f} times "
                        "that ({})",
                        where, one, number_of(by_time), format_duration(first.median_iteration_s),
                        other, ratio.value, interval)};
  if (word == "within the spread")
    return {"fastest.spread",
            fmt::format("{}, a ratio of {:.3f}; that is within the spread between runs of the same "
                        "work, so there is no significant difference",
                        times, ratio.value)};
  if (word == "one run each")
    return {"fastest.one-run",
            fmt::format("{}, a ratio of {:.3f} ({}); each is one run, and the spread between runs "
                        "of the same work is unknown, so there is no significant difference",
                        times, ratio.value, interval)};
  if (word == "no difference")
    return {"fastest.equal",
            fmt::format("{}: no significant difference (ratio {})", times, interval)};
  return {"fastest.few", times + "; too few iterations to call one faster"};
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
    const std::string& model = by_time[0]->run().model;
    const RunSpread& spread = input.spreads.at(model);
    FastestAnswer answer = fastest_answer_for(by_time, spread);
    clauses.push_back(clause_of(
        answer.sentence, std::move(answer.text), by_time, "/time/iteration",
        fmt::format("{}; ratio of median iterations of the slowest rank, 95 % bootstrap interval, "
                    "seed {}{}",
                    model, kVerdictSeed,
                    spread.known() ? "; " + spread_text(spread, model) : std::string())));
  }
  return clauses;
}

}  // namespace gradsync::report
