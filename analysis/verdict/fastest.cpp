// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/verdict/clauses.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "options/modes.h"

namespace gradsync::report {

namespace {

/// Cells that did the same work: of one model, on as many ranks of one machine, with one batch, and
/// with all options equal but the mode's own. What is learned counts: it changes no time, so
/// settings of it are not set against each other by speed, nor are modes that change it.
using Contest = std::tuple<std::string, std::int64_t, std::int64_t, std::vector<std::string>>;

std::map<Contest, Cells> contests(const VerdictInput& input) {
  using enum OptionRole;
  const auto rest = options_of({kBetweenRanks, kStep, kTraining, kMachine});
  std::map<Contest, Cells> all;
  for (const StudyCell& cell : input.cells)
    if (const Mode& mode = mode_named(cell.run().mode);
        !cell.short_of_cores && mode.exchanges && mode.changes.empty() && cell.run().ranks > 1 &&
        is_recorded(cell.run()) && std::isfinite(cell.medians.iteration_s) &&
        is_known_work(cell.run()))
      all[{cell.run().model, cell.run().ranks, cell.run().batch_per_rank,
           conditions_of(cell.run(), rest)}]
          .push_back(&cell);
  return all;
}

/// "ddp"; with the settings where the same mode takes part twice.
std::string name_of(const StudyCell& cell, const Cells& among) {
  std::vector<const RunGroup*> same;
  for (const StudyCell* other : among)
    if (other->run().mode == cell.run().mode) same.push_back(&other->group);
  const std::string settings = settings_text(cell.run(), differing_options(same));
  return settings.empty() ? cell.run().mode : fmt::format("{} ({})", cell.run().mode, settings);
}

/// "3 modes that average gradients", or "3 settings of ddp" where all are of one mode.
std::string number_of(const Cells& cells) {
  std::set<std::string> modes;
  for (const StudyCell* cell : cells)
    modes.insert(cell->run().mode);
  return modes.size() > 1 ? fmt::format("{} modes that average gradients", modes.size())
                          : fmt::format("{} settings of {}", cells.size(), *modes.begin());
}

/// One of the others, against the first.
struct Rival {
  const StudyCell* cell;
  TimeRatio ratio;  ///< holds together with those of all rivals
  Difference difference;
  double noise;  ///< of the job of both
};

/// Experiment::noise of the job that both are contenders of; 0 where there is none.
double noise_of_both(const VerdictInput& input, const StudyCell& one, const StudyCell& other) {
  const auto holds = [](const Experiment& job, const StudyCell& cell) {
    return contains(job.contenders, &cell.run(), &ContenderFigures::run);
  };
  for (const Experiment& job : input.experiments)
    if (holds(job, one) && holds(job, other) && job.control().has_interval()) return job.noise();
  return 0;
}

std::vector<Rival> rivals_of(const VerdictInput& input, const Cells& by_time,
                             const RunSpread& spread) {
  std::vector<Rival> rivals;
  for (std::size_t i = 1; i < by_time.size(); ++i) {
    const TimeRatio ratio = time_ratio(by_time[i]->group, by_time[0]->group, by_time.size() - 1);
    const double noise = noise_of_both(input, *by_time[i], *by_time[0]);
    Difference difference = difference_of(ratio.estimate(), spread);
    if (difference == Difference::kUnknown) difference = Difference::kTooFew;
    if (difference == Difference::kSlower && ratio.value - 1 < noise)
      difference = Difference::kWithinNoise;
    rivals.push_back({by_time[i], ratio, difference, noise});
  }
  return rivals;
}

/// "a, b and c".
std::string names_text(std::vector<std::string> names) {
  const std::string last = std::move(names.back());
  names.pop_back();
  return names.empty() ? last : fmt::format("{} and {}", fmt::join(names, ", "), last);
}

/// What is said of rivals with one difference, of which the first is not known to be faster.
Answer tie_answer(const Cells& by_time, const std::vector<Rival>& rivals,
                  const std::string& where) {
  std::vector<std::string> names = {name_of(*by_time[0], by_time)}, ratios;
  std::vector<std::string> times = {format_duration(by_time[0]->medians.iteration_s)};
  const bool one_basis = std::ranges::all_of(
      rivals, [&](const Rival& one) { return one.ratio.basis == rivals.front().ratio.basis; });
  for (const Rival& one : rivals) {
    names.push_back(name_of(*one.cell, by_time));
    times.push_back(format_duration(one.cell->medians.iteration_s));
    ratios.push_back(ratio_text(one.ratio));
    if (!one_basis) ratios.back() += fmt::format(" over {}", one.ratio.basis);
  }
  const std::string took =
      fmt::format("{} {} took {} an iteration", where, names_text(names), names_text(times));
  const Difference difference = rivals.front().difference;
  const std::string ratio =
      fmt::format("{} to the first{} {}", rivals.size() == 1 ? "ratio" : "ratios",
                  difference == Difference::kOneRunEach || !one_basis
                      ? ""
                      : fmt::format(", over {}:", rivals.front().ratio.basis),
                  fmt::join(ratios, ", "));
  if (difference == Difference::kWithinNoise)
    return {"fastest.noise", fmt::format("{}; {}: less than the noise of that job, {:.1f} %", took,
                                         ratio, 1e2 * rivals.front().noise)};
  if (difference == Difference::kNone)
    return {"fastest.equal", fmt::format("{}: no significant difference; {}", took, ratio)};
  if (difference == Difference::kWithinSpread)
    return {"fastest.spread",
            fmt::format("{}, {}; that is within the spread between runs of the same work: no "
                        "significant difference",
                        took, ratio)};
  if (difference == Difference::kOneRunEach)
    return {"fastest.one-run",
            fmt::format("{}, {}; one start each: no interval, so whether the modes differ was not "
                        "tested; repeat the runs or use gradsync-train --compare",
                        took, ratio)};
  return {"fastest.few", took + "; too few repeats to call one faster"};
}

/// The first is the fastest only where each of the others is slower. They come in the order of
/// their median iterations; their ratios are of other means, so another may be faster than it.
std::vector<Answer> answers_for(const VerdictInput& input, Cells by_time, const RunSpread& spread,
                                const std::string& where) {
  std::vector<Rival> rivals = rivals_of(input, by_time, spread);
  for (std::size_t moved = 0; moved < by_time.size(); ++moved) {
    const auto faster = std::ranges::find(rivals, Difference::kFaster, &Rival::difference);
    if (faster == rivals.end()) break;
    const auto cell = std::ranges::find(by_time, faster->cell);
    std::rotate(by_time.begin(), cell, cell + 1);
    rivals = rivals_of(input, by_time, spread);
  }
  std::vector<Answer> answers;
  for (const Difference difference :
       {Difference::kNone, Difference::kWithinSpread, Difference::kOneRunEach, Difference::kTooFew,
        Difference::kWithinNoise}) {
    std::vector<Rival> tied = rivals;
    std::erase_if(tied, [&](const Rival& one) { return one.difference != difference; });
    if (!tied.empty()) answers.push_back(tie_answer(by_time, tied, where));
  }
  if (!answers.empty() || contains(rivals, Difference::kFaster, &Rival::difference)) return answers;
  const Rival& next =
      *std::ranges::min_element(rivals, {}, [](const Rival& one) { return one.ratio.value; });
  return {
      {"fastest.mode",
       fmt::format("{} {} is the fastest of {}: {} an iteration, {} next with {:.3f} times "
                   "that ({:.3f} to {:.3f})",
                   where, name_of(*by_time[0], by_time), number_of(by_time),
                   format_duration(by_time[0]->medians.iteration_s), name_of(*next.cell, by_time),
                   next.ratio.value, next.ratio.low, next.ratio.high)}};
}

/// The contest of a model on most ranks, then with most entries.
const Cells* main_contest(const std::map<Contest, Cells>& all, const std::string& model) {
  const Cells* best = nullptr;
  for (const auto& [key, cells] : all) {
    if (std::get<0>(key) != model || cells.size() < 2) continue;
    const auto weight = [](const Cells& one) {
      return std::make_pair(one.front()->run().ranks, one.size());
    };
    if (!best || weight(cells) > weight(*best)) best = &cells;
  }
  return best;
}

/// "at 4 ranks with 32 images per rank"; with the devices where the model was trained on others
/// too.
std::string where_of(const Run& run, const std::map<Contest, Cells>& all) {
  const std::string devices = devices_of(run);
  const bool on_others = std::ranges::any_of(all, [&](const auto& contest) {
    const Run& other = contest.second.front()->run();
    return other.model == run.model && devices_of(other) != devices;
  });
  return fmt::format("at {} with {}{}", count_text(run.ranks, "rank"), images_text(run),
                     on_others ? " on " + or_unknown(devices) : "");
}

}  // namespace

Clauses fastest_clauses(const VerdictInput& input) {
  Clauses clauses;
  const auto all = contests(input);
  for (const auto& [family, top] : focus(input)) {
    const Cells* contest = main_contest(all, family.front()->run().model);
    if (!contest) continue;
    Cells by_time = *contest;
    std::ranges::stable_sort(by_time, [](const auto* a, const auto* b) {
      return a->medians.iteration_s < b->medians.iteration_s;
    });
    const std::string& model = by_time[0]->run().model;
    const RunSpread& spread = input.spreads.at(model);
    const std::string where = where_of(by_time[0]->run(), all);
    for (Answer& answer : answers_for(input, by_time, spread, where))
      clauses.push_back(clause_of(
          answer.sentence, std::move(answer.text), by_time, "/time/iteration",
          fmt::format(
              "{}; ratio of median iterations of the slowest rank, intervals over rounds or "
              "starts that hold together with 95 % ({}){}",
              model, count_text(by_time.size() - 1, "comparison"),
              spread.known() ? "; " + spread_text(spread, model) : std::string())));
  }
  return clauses;
}

}  // namespace gradsync::report
