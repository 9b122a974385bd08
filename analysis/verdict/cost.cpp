// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/figures/bandwidth.h"
#include "analysis/figures/rank_figures.h"
#include "analysis/tables/columns.h"
#include "analysis/verdict/clauses.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "options/modes.h"
#include "options/option_roles.h"

namespace gradsync::report {

namespace {

/// The experiment of a network on most ranks; with `costed`, of those that measured what an
/// exchange costs.
const Experiment* largest_experiment(const VerdictInput& input, const std::string& model,
                                     bool costed) {
  const Experiment* best = nullptr;
  for (const Experiment& one : input.experiments) {
    const Run& run = *one.contenders.front().run;
    if (run.model == model && run.ranks > 1 && (!costed || one.without_exchange()) &&
        (!best || run.ranks > best->contenders.front().run->ranks))
      best = &one;
  }
  return best;
}

/// The experiment of each network.
std::vector<const Experiment*> main_experiments(const VerdictInput& input, bool costed = false) {
  std::vector<const Experiment*> all;
  for (const Experiment& one : input.experiments)
    if (&one == largest_experiment(input, one.contenders.front().run->model, costed))
      all.push_back(&one);
  return all;
}

}  // namespace

const Experiment* experiment_of(const VerdictInput& input, const std::string& model) {
  return largest_experiment(input, model, /*costed=*/false);
}

VerdictClause clause_of(std::string_view sentence, std::string text, const Experiment& experiment,
                        std::string datasets) {
  const Run& run = *experiment.contenders.front().run;
  VerdictClause clause =
      clause_of(sentence, std::move(text), Cells{}, std::move(datasets),
                fmt::format("{}, {}, {}; {} of one job, of the slowest rank, 95 % "
                            "signed-rank intervals",
                            run.model, count_text(run.ranks, "rank"), images_text(run),
                            count_text(experiment.contenders.front().blocks.size(), "round")));
  clause.networks = {run.model};
  for (const ContenderFigures& one : experiment.contenders)
    clause.files.push_back(one.run->path.string());
  return clause;
}

std::string ratio_text(const Estimate& ratio) {
  return ratio.has_interval()
             ? fmt::format("{:.3f} ({:.3f} to {:.3f})", ratio.value, ratio.low, ratio.high)
             : fmt::format("{:.3f}", ratio.value);
}

namespace {

/// Whether a ratio of two contenders cannot be distinguished from 1.
bool is_noise(const Experiment& experiment, const Estimate& ratio) {
  return ratio.holds(1) || std::abs(ratio.value - 1) < experiment.noise();
}

/// The contender whose cost is named, of those that exchange and step by averaged gradients: the
/// first one that is the same training and overlaps and casts, as DDP does, else the first one that
/// is the same training, else the first one.
const ContenderFigures* main_contender(const Experiment& experiment) {
  const ContenderFigures* best = nullptr;
  int most = -1;
  for (const ContenderFigures& one : experiment.contenders) {
    const Mode& mode = mode_named(one.run->mode);
    if (one.control || !mode.exchanges || !mode.changes.empty()) continue;
    const int weight = !other_training_text(one.name).empty() ? 0
                       : mode.overlaps && mode.casts          ? 2
                                                              : 1;
    if (weight > most) most = weight, best = &one;
  }
  return best;
}

/// ": 1.20 ms exposed communication, …"; empty where waiting was not told apart.
std::string parts_text(const BlockTime& more, int decimals) {
  const auto& [compute_s, exposed_s, wait_s, rest_s] = more.parts_s;
  if (!std::isfinite(wait_s)) return {};
  const auto ms = [decimals](double time_s) {
    return Cell::of(1e3 * time_s, decimals).shown() + " ms";
  };
  return fmt::format(": {} exposed communication, {} waiting for ranks, {}, {} rest", ms(exposed_s),
                     ms(wait_s),
                     compute_s < 0 ? fmt::format("less {} of faster compute", ms(-compute_s))
                                   : fmt::format("{} slower compute", ms(compute_s)),
                     ms(rest_s));
}

/// "none,ddp,allreduce": its contenders, and one that exchanges nothing.
std::string all_contenders(const Experiment& experiment) {
  std::vector<std::string> names;
  if (!experiment.without_exchange()) names.push_back("none");
  for (const ContenderFigures& one : experiment.contenders)
    if (!one.control) names.push_back(one.name);
  if (!main_contender(experiment)) names.push_back("ddp");
  return fmt::format("{}", fmt::join(names, ","));
}

VerdictClause measured_cost(const Experiment& experiment, const ContenderFigures& one,
                            const ContenderFigures& without) {
  constexpr const char* kDatasets =
      "/time/iteration, /time/compute, /time/exposed, /time/wait, /iteration/round";
  const Estimate ratio = one.ratio_to(without);
  const std::string where =
      fmt::format("{}{} at {} with {}", one.name, other_training_text(one.name),
                  count_text(one.run->ranks, "rank"), images_text(*one.run));
  if (!ratio.has_interval())
    return clause_of(
        "cost.few",
        fmt::format("an iteration of {} takes {} times as long as without synchronization; "
                    "{} are too few for an interval: give more --iterations",
                    where, ratio_text(ratio), count_text(ratio.count, "round")),
        experiment, kDatasets);
  if (is_noise(experiment, ratio))
    return clause_of(
        "cost.none",
        fmt::format(
            "gradient synchronization costs nothing that can be distinguished from noise here: an "
            "iteration of {} takes {} times as long as without it",
            where, ratio_text(ratio)),
        experiment, kDatasets);
  const bool longer = ratio.value > 1;
  Estimate share{std::abs(ratio.value - 1), ratio.low - 1, ratio.high - 1, ratio.count};
  if (!longer) share = {share.value, 1 - ratio.high, 1 - ratio.low, ratio.count};
  double without_s = 0;
  const BlockTime more = one.more_than(without, &without_s);
  const int decimals = ms_decimals(1e3 * without_s);
  return clause_of(
      "cost.measured",
      fmt::format("gradient synchronization makes an iteration of {} {}{} {} than without it, by "
                  "{:.{}f} ms{}",
                  where, percent_text(share.value), interval_text(share),
                  longer ? "longer" : "shorter", 1e3 * std::abs(more.time_s), decimals,
                  longer ? parts_text(more, decimals) : std::string()),
      experiment, kDatasets);
}

/// What a cell does without an exchange: on as many ranks, of the same iteration.
const StudyCell* without_exchange(const VerdictInput& input, const StudyCell& cell) {
  const auto step = options_of({OptionRole::kStep, OptionRole::kMachine});
  for (const StudyCell& one : input.cells)
    if (!one.exchanges() && !one.short_of_cores && one.run().model == cell.run().model &&
        one.run().ranks == cell.run().ranks &&
        one.run().batch_per_rank == cell.run().batch_per_rank && is_known_work(one.run()) &&
        conditions_of(one.run(), step) == conditions_of(cell.run(), step))
      return &one;
  return nullptr;
}

VerdictClause cost_of_starts(const StudyCell& cell, const StudyCell& without) {
  const TimeRatio ratio = time_ratio(cell.group, without.group);
  const std::string took =
      fmt::format("an iteration of {} takes {} times as long as without synchronization (none)",
                  setting_text(cell), ratio_text(ratio));
  const auto clause = [&](const char* sentence, std::string text) {
    return clause_of(sentence, std::move(text), {&cell, &without}, "/time/iteration",
                     cell.name +
                         "; ratio of the median iterations of the slowest rank, intervals "
                         "over starts");
  };
  if (ratio.has_interval())
    return clause("cost.repeats", fmt::format("{}, over {}", took, ratio.basis));
  return clause("cost.starts",
                fmt::format("{}; these are {}, and starts differ by more than iterations tell: "
                            "gradsync-train --compare none,{} gives an interval",
                            took, ratio.basis, cell.mode));
}

bool several_ranks_short_of_cores(const VerdictInput& input, const std::string& model) {
  return std::ranges::any_of(input.cells, [&](const StudyCell& cell) {
    return cell.run().model == model && cell.short_of_cores && cell.run().ranks > 1;
  });
}

constexpr const char* kNotMeasuredCost = "what gradient synchronization costs was not measured";

/// Says which run would measure it.
VerdictClause missing_cost(const VerdictInput& input, const StudyCell& cell) {
  const Run& run = cell.run();
  // Of several networks the sentence names them before.
  const bool one_network = std::ranges::all_of(
      input.cells, [&](const StudyCell& other) { return other.run().model == run.model; });
  const bool known = cell.exchanges() && mode_position(cell.mode) < std::size(kModes);
  return missing_clause(
      "cost.missing",
      is_traced(run.reader->info())
          ? fmt::format("{}: record a trace of the same job without an exchange on as many ranks",
                        kNotMeasuredCost)
          : fmt::format("{}: run mpirun -n {} gradsync-train{}{} --compare none,{}",
                        kNotMeasuredCost, std::max<std::int64_t>(run.ranks, 2),
                        one_network ? " --model " + run.model : std::string(),
                        run.batch_per_rank > 0
                            ? fmt::format(" --batch-per-rank {}", run.batch_per_rank)
                            : std::string(),
                        known ? cell.mode : "ddp"),
      run.model);
}

}  // namespace

/// What an iteration takes longer than without an exchange.
Clauses cost_clauses(const VerdictInput& input) {
  // The cell of a contender that several jobs have; null where one job has it.
  const auto repeated = [&](const ContenderFigures* one) -> const StudyCell* {
    for (const StudyCell& cell : input.cells)
      if (one && cell.group.repeats.size() > 1 && contains(cell.group.repeats, one->run))
        return &cell;
    return nullptr;
  };
  // One job alone says more of itself: measured_cost.
  const auto of_several = [](const StudyCell& cell, const StudyCell& base) {
    const TimeRatio ratio = time_ratio(cell.group, base.group);
    return std::isfinite(ratio.value) && ratio.jobs != 1;
  };
  Clauses clauses;
  std::set<std::string> known;  // networks
  for (const Experiment* experiment : main_experiments(input, /*costed=*/true)) {
    const ContenderFigures* one = main_contender(*experiment);
    const ContenderFigures* without = experiment->without_exchange();
    const StudyCell *cell = repeated(one), *base = repeated(without);
    if (cell && base && other_training_text(one->name).empty() && of_several(*cell, *base))
      clauses.push_back(cost_of_starts(*cell, *base));
    else if (one && std::isfinite(one->ratio_to(*without).value))
      clauses.push_back(measured_cost(*experiment, *one, *without));
    else
      continue;
    known.insert(experiment->contenders.front().run->model);
  }
  for (const auto& [family, top] : focus(input)) {
    const std::string& model = family.front()->run().model;
    if (known.contains(model) || (top.empty() && several_ranks_short_of_cores(input, model)))
      continue;
    const StudyCell& cell = top.empty() ? *family.front() : *top.front();
    const StudyCell* without = cell.exchanges() ? without_exchange(input, cell) : nullptr;
    if (without && !top.empty() &&
        std::isfinite(cell.medians.iteration_s + without->medians.iteration_s))
      clauses.push_back(cost_of_starts(cell, *without));
    else if (!experiment_of(input, model))
      clauses.push_back(missing_cost(input, cell));
    else
      continue;
    known.insert(model);
  }
  for (const Experiment* experiment : main_experiments(input))
    if (const std::string& model = experiment->contenders.front().run->model;
        !known.contains(model))
      clauses.push_back(missing_clause("cost.missing",
                                       fmt::format("{}: run it with --compare {}", kNotMeasuredCost,
                                                   all_contenders(*experiment)),
                                       model));
  return clauses;
}

Estimate cost_ratio(const VerdictInput& input, const StudyCell& cell) {
  const StudyCell* without = without_exchange(input, cell);
  return without ? time_ratio(cell.group, without->group).estimate() : Estimate();
}

namespace {

/// An iteration against another one, by their ratio.
struct Compared {
  std::string word;  ///< of the sentence's name
  std::string text;  ///< before the name of the other one
};

Compared compared(const Experiment& experiment, const Estimate& ratio) {
  if (is_noise(experiment, ratio))
    return {"noise",
            fmt::format("takes {} times as long, which cannot be distinguished from that of",
                        ratio_text(ratio))};
  if (ratio.value < 1)
    return {"faster", fmt::format("is {} shorter, {} times as long as that of",
                                  percent_text(1 - ratio.value), ratio_text(ratio))};
  return {"slower", fmt::format("takes {} times as long as that of", ratio_text(ratio))};
}

}  // namespace

/// What the best of the settings that --advise tried saves, and what was predicted.
Clauses advice_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const Experiment* experiment : main_experiments(input)) {
    const ContenderFigures* best = nullptr;
    Estimate measured;
    for (const ContenderFigures& one : experiment->contenders) {
      const ContenderFigures* against = experiment->find(one.against);
      if (one.against.empty() || !against) continue;
      const Estimate ratio = one.ratio_to(*against);
      if (!ratio.has_interval() || (best && ratio.value >= measured.value)) continue;
      best = &one;
      measured = ratio;
    }
    if (!best) continue;
    const Compared said = compared(*experiment, measured);
    clauses.push_back(
        clause_of("advice." + said.word,
                  fmt::format("advice was tried: an iteration of {}{} {} {}, predicted {:.3f} "
                              "({:.3f} to {:.3f})",
                              best->name, other_training_text(best->name), said.text,
                              best->against + other_training_text(best->against),
                              best->predicted.value, best->predicted.low, best->predicted.high),
                  *experiment, "/time/iteration, /iteration/round, /experiment"));
  }
  return clauses;
}

namespace {

/// "; it saves …, encodes for … and pays where …". Empty where it saves nothing.
std::string pays_text(const Experiment& experiment, const ContenderFigures& changed,
                      const ContenderFigures& exact) {
  const SentFigures &less = changed.sent, &more = exact.sent;
  if (!(more.link_bytes > less.link_bytes)) return {};
  std::string text = fmt::format("; it saves {} of a rank's link",
                                 format_bytes(std::llround(more.link_bytes - less.link_bytes)));
  if (less.convert_s > 0) text += fmt::format(" and encodes for {:.2f} ms", 1e3 * less.convert_s);
  const Estimate below = experiment.pays_below(changed);
  if (!below.has_interval() || is_noise(experiment, changed.ratio_to(exact))) return text;
  const auto rate = [](double bytes_per_s) {
    return std::isinf(bytes_per_s) ? "any" : fmt::format("{:.2f}", 8e-9 * bytes_per_s);
  };
  text += "; it is faster than each contender here that steps by averaged gradients ";
  if (std::isinf(below.low)) return text + "on a link of any rate";
  if (std::isinf(below.value))
    return text + fmt::format(
                      "on a link of any rate, by the low end of the interval below {} "
                      "Gbit/s",
                      rate(below.low));
  return text + fmt::format("on a rank's link of less than {} Gbit/s ({} to {})", rate(below.value),
                            rate(below.low), rate(below.high));
}

/// "; test accuracy 61.0 % against 62.3 %", of each the mean over ranks at its last evaluation.
std::string accuracy_text(const Run& run, const Run& against) {
  const double one = mean_test_accuracy(run), other = mean_test_accuracy(against);
  if (std::isnan(one) || std::isnan(other))
    return "; test accuracy not measured: give whole --epochs and --evaluate shard";
  return fmt::format("; test accuracy {:.1f} % against {:.1f} %", 1e2 * one, 1e2 * other);
}

}  // namespace

/// What each mode that changes the training saves against the fastest one that does not.
Clauses changed_training_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const Experiment* experiment : main_experiments(input)) {
    const ContenderFigures* exact = experiment->fastest_exact();
    if (!exact) continue;
    for (const ContenderFigures* changed : experiment->changing_training()) {
      const Estimate ratio = changed->ratio_to(*exact);
      if (!std::isfinite(ratio.value)) continue;
      Compared said = compared(*experiment, ratio);
      std::string few;
      if (!ratio.has_interval()) {
        said = {"few", fmt::format("takes {} times as long as that of", ratio_text(ratio))};
        few = fmt::format("; {} are too few for an interval: give more --iterations",
                          count_text(ratio.count, "round"));
      }
      clauses.push_back(clause_of(
          "changed." + said.word,
          fmt::format(
              "an iteration of {}{} {} {}{}{}{}", changed->name, other_training_text(changed->name),
              said.text, exact->name + other_training_text(exact->name), few,
              pays_text(*experiment, *changed, *exact), accuracy_text(*changed->run, *exact->run)),
          *experiment,
          "/time/iteration, /time/convert, /traffic, /iteration/round, /epoch/test_accuracy"));
    }
  }
  return clauses;
}

/// What the noise of an experiment hides.
Clauses control_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const Experiment* experiment : main_experiments(input)) {
    const Estimate control = experiment->control();
    if (!control.has_interval()) continue;
    clauses.push_back(clause_of(
        "control.noise",
        fmt::format(
            "differences below {:.1f} % cannot be distinguished from noise here: the control, {} "
            "again, takes {} times as long{}",
            1e2 * experiment->noise(), experiment->reference()->name, ratio_text(control),
            control.holds(1) ? ""
                             : "; its interval does not hold 1, so intervals of this job state too "
                               "little: repeat it"),
        *experiment, "/time/iteration, /iteration/round"));
  }
  return clauses;
}

namespace {

/// What is less of an iteration has no sentence of its own.
constexpr double kNamed = 0.05;

/// Where a rank loses time against the mean of the others.
struct Lag {
  std::size_t rank = 0;
  double all_s = 0;        ///< in all that is named
  double largest_s = 0;    ///< in what `cause` names
  std::string cause = {};  ///< "its forward pass takes 3 ms, that of the others 1 ms"
  bool by_data = false;    ///< the cause is its wait for data

  void add(double more_s, std::string text, bool data) {
    all_s += more_s;
    if (!cause.empty() && more_s <= largest_s) return;
    largest_s = more_s;
    cause = std::move(text);
    by_data = data;
  }
};

double mean_of_others(const std::vector<double>& ranks, std::size_t rank) {
  const double sum = std::accumulate(ranks.begin(), ranks.end(), 0.0) - ranks[rank];
  return sum / static_cast<double>(ranks.size() - 1);
}

/// Means over steady iterations, of each rank.
struct Waiting {
  explicit Waiting(const StudyCell& of)
      : cell(of),
        ranks(split_figures(*of.run().reader, of.run().steady)),
        begin_s(rank_means(*of.run().reader, of.run().steady,
                           [](RunReader& run, std::size_t first, std::size_t count) {
                             return run.begin(first, count);
                           })),
        mean(mean_of(ranks)) {}

  const StudyCell& cell;
  std::vector<SplitFigures> ranks;
  std::vector<double> begin_s;
  SplitFigures mean;

  double share(double time_s) const { return time_s / mean[Phase::kIteration]; }
  std::vector<double> times_s(Phase phase) const {
    return each(ranks, [&](const SplitFigures& one) { return one[phase]; });
  }
  Lag lag_of(std::size_t rank) const;
  Lag largest_lag() const;
  /// Whether what the rank lags behind is most of what the others wait.
  bool explained_by(const Lag& lag) const {
    return lag.all_s >= kMainCause * mean_of_others(times_s(Phase::kWait), lag.rank);
  }
};

Lag Waiting::lag_of(std::size_t rank) const {
  Lag lag{rank};
  const double late_s = begin_s[rank] - mean_of_others(begin_s, rank);
  if (std::isfinite(late_s))
    lag.add(late_s,
            fmt::format("it begins its iterations {} after the others", format_duration(late_s)),
            false);
  for (const auto& [phase, name] : {std::pair{Phase::kData, "wait for data"},
                                    {Phase::kForward, "forward pass"},
                                    {Phase::kBackward, "backward pass"},
                                    {Phase::kOptimizer, "optimizer step"}}) {
    const std::vector<double> all_s = times_s(phase);
    const double others_s = mean_of_others(all_s, rank);
    if (!std::isfinite(all_s[rank] - others_s)) continue;
    lag.add(all_s[rank] - others_s,
            fmt::format("its {} takes {}, that of the others {}", name,
                        format_duration(all_s[rank]), format_duration(others_s)),
            phase == Phase::kData);
  }
  return lag;
}

Lag Waiting::largest_lag() const {
  Lag largest = lag_of(0);
  for (std::size_t rank = 1; rank < ranks.size(); ++rank)
    if (Lag one = lag_of(rank); one.all_s > largest.all_s) largest = std::move(one);
  return largest;
}

std::string rank_text(const Run& run, std::size_t rank) {
  const RankPlace& place = run.reader->info().topology.at(rank);
  return fmt::format("rank {}{}", rank, has_known_host(place) ? " on host " + place.host : "");
}

/// The cell on most ranks of each network. One whose ranks waited for a core counts where there is
/// no other: who is late is measured there as well.
std::vector<Waiting> waiting_cells(const VerdictInput& input) {
  std::map<std::string, const StudyCell*> by_network;
  for (const auto& [family, top] : focus(input))
    if (!top.empty()) by_network[top.front()->run().model] = top.front();
  for (const StudyCell& cell : input.cells)
    if (cell.short_of_cores && cell.exchanges() && cell.run().ranks > 1)
      by_network.try_emplace(cell.run().model, &cell);
  std::vector<Waiting> all;
  for (const auto& [network, cell] : by_network)
    all.emplace_back(*cell);
  return all;
}

constexpr const char* kFirstRun = "; means of the first run over the iterations after warm-up";

}  // namespace

/// Which rank the others wait for, and what it does meanwhile.
Clauses late_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const Waiting& one : waiting_cells(input)) {
    const double share = one.share(one.mean.wait_s());
    if (!(share >= kNamed)) continue;
    const Lag lag = one.largest_lag();
    const std::string waits = fmt::format("straggler wait is {} of an iteration of {}",
                                          percent_text(share), setting_text(one.cell));
    const bool known = one.explained_by(lag);
    clauses.push_back(clause_of(
        known ? "late.rank" : "late.ranks",
        known ? fmt::format("{}, for {}: {}", waits, rank_text(one.cell.run(), lag.rank), lag.cause)
              : waits + ", and no rank lags behind by most of that",
        {&one.cell}, "/time/wait, /time/data, /time/forward, /time/backward, /time/optimizer",
        one.cell.name + kFirstRun));
  }
  return clauses;
}

/// Which rank has most time that is neither compute nor communication nor waiting for ranks; not
/// where that is what the others wait for.
Clauses rest_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const Waiting& one : waiting_cells(input)) {
    const auto rest_s = [](const SplitFigures& rank) {
      return rank[Phase::kIteration] - rank[Phase::kCompute] - rank[Phase::kExposed] -
             (std::isfinite(rank.wait_s()) ? rank.wait_s() : 0);
    };
    const double share = one.share(rest_s(one.mean));
    const auto share_of = [&](const SplitFigures& rank) {
      const double part = rest_s(rank) / rank[Phase::kIteration];
      return std::isfinite(part) ? part : -HUGE_VAL;
    };
    const auto most = std::ranges::max_element(
        one.ranks,
        [&](const SplitFigures& a, const SplitFigures& b) { return share_of(a) < share_of(b); });
    const auto rank = static_cast<std::size_t>(most - one.ranks.begin());
    const Lag lag = one.largest_lag();
    const bool said = lag.by_data && lag.rank == rank && one.share(one.mean.wait_s()) >= kNamed &&
                      one.explained_by(lag);
    if (!(share >= kNamed) || said) continue;
    const bool data = (*most)[Phase::kData] >= kMainCause * rest_s(*most);
    const Run& run = one.cell.run();
    const bool traced = is_traced(run.reader->info());
    clauses.push_back(clause_of(
        data ? "rest.data" : "rest.other",
        fmt::format(
            "{} of an iteration of {} is neither compute nor communication nor straggler "
            "wait, most on {}: {} of its iteration, {}",
            percent_text(share), setting_text(one.cell), rank_text(run, rank),
            percent_text(share_of(*most)),
            data     ? fmt::format("mainly waiting for data{}", traced ? "" : " (--loader-threads)")
            : traced ? "mainly outside its operators"
                     : "mainly outside its data, forward, backward and optimizer phases"),
        {&one.cell}, "/time/iteration, /time/compute, /time/exposed, /time/wait, /time/data",
        one.cell.name + kFirstRun));
  }
  return clauses;
}

}  // namespace gradsync::report
