// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/figures/comparisons.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/figures/epoch_figures.h"
#include "analysis/figures/experiments.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "options/modes.h"
#include "record/run.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double count(double ranks) {
  return ranks >= 1 ? ranks : kNone;
}

}  // namespace

double speedup(double base_time, double time) {
  return positive(base_time) / positive(time);
}

double derived_compute(double time_of_one, double ranks) {
  return positive(time_of_one) / count(ranks);
}

double derived_communication(double time_of_one, double time, double ranks) {
  return positive(time) - derived_compute(time_of_one, ranks);
}

namespace {

/// Options that a base must share.
constexpr std::array<std::string_view, 2> kSameOptions = {"precision", "accumulate"};
/// Options that change the time and are named where they differ. How ranks exchange says nothing
/// of a base of one rank.
std::vector<std::string> time_options(const RunGroup& base) {
  using enum OptionRole;
  return base.first().ranks == 1 ? options_of({kMachine, kStep})
                                 : options_of({kMachine, kStep, kBetweenRanks, kMode});
}

/// What changes the time and differs between a cell and its base.
struct Unlike {
  std::string text;  ///< "threads 2 in the base, 1 here"
  /// How ranks exchange, chosen by the trainer in both (auto): it follows from where the ranks are.
  bool by_rule = false;
};

/// Whether the trainer chose the value: it is recorded as what nobody asked for, or, in older
/// files, as the choice that was left to it.
bool is_chosen_by_rule(const Run& run, const TrainOption& option) {
  const auto& config = run.reader->info().config;
  const auto entry = std::ranges::find(config, option.name, &ConfigEntry::name);
  return !option.open.empty() && entry != config.end() &&
         (entry->source == "default" || entry->value == option.open);
}

std::vector<Unlike> differences(const RunGroup& group, const RunGroup& base) {
  std::vector<Unlike> all;
  const auto add = [&](const std::string& name, const std::string& there, const std::string& here,
                       bool by_rule) {
    if (here != there)
      all.push_back({fmt::format("{}{} in the base, {} here", name, there, here), by_rule});
  };
  for (const std::string& name : time_options(base)) {
    const TrainOption& option = *declared_train_option(name);
    const bool by_rule = option.role == OptionRole::kBetweenRanks &&
                         is_chosen_by_rule(group.first(), option) &&
                         is_chosen_by_rule(base.first(), option);
    add(name + " ", option_value(base.first(), name), option_value(group.first(), name), by_rule);
  }
  add("", or_unknown(devices_of(base.first())), or_unknown(devices_of(group.first())), false);
  return all;
}

bool comparable(const RunGroup& group, const RunGroup& base) {
  if (!is_known_work(group.first()) || group.first().model != base.first().model) return false;
  if (training_images(group.first()) != training_images(base.first())) return false;
  return std::ranges::all_of(kSameOptions, [&](std::string_view name) {
    return option_value(group.first(), name) == option_value(base.first(), name);
  });
}

bool scales(const RunGroup& group, const RunGroup& base, Scaling scaling) {
  const Run &run = group.first(), &other = base.first();
  if (!batch_schedule(run).empty() || !batch_schedule(other).empty()) return false;
  if (scaling == Scaling::kStrong)
    return run.batch_global > 0 && run.batch_global == other.batch_global;
  return run.batch_per_rank > 0 && run.batch_per_rank == other.batch_per_rank &&
         run.ranks != other.ranks;
}

std::size_t options_apart(const RunGroup& group, const RunGroup& base) {
  return static_cast<std::size_t>(std::ranges::count_if(cell_options(), [&](std::string_view name) {
    return option_value(group.first(), name) != option_value(base.first(), name);
  }));
}

/// The best of the candidates that `fits` holds for: fair ones first, then fewest ranks, then
/// fewest options of another value, then the first.
template <typename Fits>
const RunGroup* best_base(const std::vector<RunGroup>& groups, const RunGroup& group,
                          Scaling scaling, Fits fits) {
  const RunGroup* best = nullptr;
  std::tuple<bool, std::int64_t, std::size_t> least;
  for (const RunGroup& one : groups) {
    if (!fits(one) || !scales(group, one, scaling) || !comparable(group, one)) continue;
    const std::tuple rank(!is_fair(group, one), one.first().ranks, options_apart(group, one));
    if (best != nullptr && rank >= least) continue;
    best = &one;
    least = rank;
  }
  return best;
}

}  // namespace

std::string_view scaling_name(Scaling scaling) {
  return scaling == Scaling::kStrong ? "strong" : "weak";
}

std::vector<Comparison> comparisons(const std::vector<RunGroup>& groups) {
  std::vector<Comparison> all;
  for (const RunGroup& group : groups)
    for (const Scaling scaling : {Scaling::kStrong, Scaling::kWeak}) {
      if (scaling == Scaling::kWeak && group.first().ranks == 1) continue;
      const auto is_alone = [](const RunGroup& one) {
        return !mode_named(one.first().mode).exchanges && one.first().ranks == 1;
      };
      // One rank without an exchange is compared with itself alone.
      const RunGroup* alone =
          is_alone(group) ? nullptr : best_base(groups, group, scaling, is_alone);
      // The group itself, where it runs on one rank.
      const RunGroup* mode = best_base(groups, group, scaling, [&](const RunGroup& one) {
        if (one.first().mode != group.first().mode) return false;
        return one.first().ranks < group.first().ranks ||
               (&one == &group && one.first().ranks == 1);
      });
      if (alone) all.push_back({&group, alone, scaling});
      if (mode && mode != alone) all.push_back({&group, mode, scaling});
    }
  return all;
}

std::string base_text(const RunGroup& base) {
  const Run& run = base.first();
  return fmt::format("{}, {} x {}", run.mode, run.ranks, run.batch_per_rank);
}

std::string unfairness(const Comparison& comparison) {
  const auto all = differences(*comparison.group, *comparison.base);
  return fmt::format("{}", fmt::join(each(all, &Unlike::text), "; "));
}

bool is_fair(const RunGroup& group, const RunGroup& base) {
  return std::ranges::all_of(differences(group, base), &Unlike::by_rule);
}

namespace {

/// The runs of a group by their jobs.
std::vector<RunGroup> starts_of(const RunGroup& group) {
  std::vector<RunGroup> starts;
  std::map<std::string, std::size_t> of_job;
  for (const Run* run : group.repeats) {
    const std::string job = experiment_id(*run);
    const auto [known, is_new] =
        of_job.try_emplace(job.empty() ? run->path.string() : job, starts.size());
    if (is_new) starts.emplace_back();
    starts[known->second].repeats.push_back(run);
  }
  return starts;
}

StartTimes iteration_times(const RunGroup& group) {
  StartTimes times;
  for (const RunGroup& start : starts_of(group))
    times.add(steady_values(start, Phase::kIteration));
  return times;
}

}  // namespace

std::string_view time_basis_name(TimeBasis basis) {
  return kTimeBasisNames[static_cast<std::size_t>(basis)];
}

void StartTimes::add(std::vector<double> of_start_s) {
  std::erase_if(of_start_s, [](double value) { return !std::isfinite(value); });
  if (of_start_s.empty()) return;
  starts_s.push_back(median(of_start_s));
  values_s.insert(values_s.end(), of_start_s.begin(), of_start_s.end());
}

GroupTimes group_times(const RunGroup& group) {
  GroupTimes times;
  auto& [iteration, training, running] = times.of;
  iteration = iteration_times(group);
  std::map<const Run*, std::vector<EpochFigures>> whole_epochs;
  bool later = false;
  for (const Run* run : group.repeats) {
    auto& epochs = whole_epochs[run] = epoch_figures(*run);
    std::erase_if(epochs, [](const EpochFigures& epoch) { return !epoch.whole; });
    later |= std::ranges::any_of(epochs, [](const auto& one) { return one.epoch > 0; });
  }
  for (const RunGroup& start : starts_of(group)) {
    std::vector<double> training_s, running_s;
    for (const Run* run : start.repeats)
      for (const EpochFigures& epoch : whole_epochs[run]) {
        if (later && epoch.epoch == 0) continue;
        times.first_epoch_only |= !later;
        training_s.push_back(epoch.training_s);
        running_s.push_back(epoch.running_s);
      }
    training.add(std::move(training_s));
    running.add(std::move(running_s));
  }
  return times;
}

TimeRatio ratio_over_starts(const StartTimes& above, const StartTimes& below,
                            std::size_t comparisons) {
  const std::size_t a = above.starts_s.size(), b = below.starts_s.size();
  TimeRatio ratio;
  ratio.count = std::min(a, b);
  if (ratio.count == 0) return ratio;
  ratio.basis = a != b   ? fmt::format("{} and {} starts", a, b)
                : a == 1 ? "one start each"
                         : fmt::format("{} starts each", a);
  ratio.value = median(above.values_s) / median(below.values_s);
  if (ratio.count < kFewestStarts) return ratio;
  const auto logarithms = [](const std::vector<double>& times_s) {
    return each(times_s, [](const double time_s) { return std::log(time_s); });
  };
  static_cast<Estimate&>(ratio) = exponential(
      difference_estimate(logarithms(above.starts_s), logarithms(below.starts_s), comparisons));
  return ratio;
}

namespace {

/// The run of a job; null where the group has none.
const Run* contender_of(const std::string& job, const RunGroup& group) {
  const auto found =
      std::ranges::find(group.repeats, job, [](const Run* run) { return experiment_id(*run); });
  return found == group.repeats.end() ? nullptr : *found;
}

}  // namespace

TimeRatio time_ratio(const RunGroup& above, const RunGroup& below, std::size_t comparisons) {
  std::vector<double> logarithms;
  Estimate of_job;
  bool in_one_job = false;
  for (const RunGroup& start : starts_of(above)) {
    const std::string job = experiment_id(start.first());
    const Run* other = job.empty() ? nullptr : contender_of(job, below);
    if (other == nullptr) continue;
    in_one_job = true;
    const Estimate ratio = contender_ratio(*contender_of(job, start), *other, comparisons);
    if (!std::isfinite(ratio.value)) continue;  // they have no round in common
    of_job = ratio;
    logarithms.push_back(std::log(ratio.value));
  }
  if (!in_one_job)
    return ratio_over_starts(iteration_times(above), iteration_times(below), comparisons);
  if (logarithms.size() <= 1) return {of_job, count_text(of_job.count, "round"), 1};
  return {exponential(mean_estimate(logarithms, comparisons)),
          fmt::format("{} jobs", logarithms.size()), logarithms.size()};
}

namespace {

/// Runs of the same work.
struct SameWork {
  std::string model;
  const char* what;
  RunGroup runs;
};

/// What makes two runs on one rank the same work.
std::vector<std::string> work_on_one_rank(const Run& run) {
  using enum OptionRole;
  std::vector<std::string> key = conditions_of(run, options_of({kStep, kTraining, kMachine}));
  key.insert(key.end(),
             {run.model, std::to_string(run.batch_per_rank), std::to_string(run.batch_global)});
  return key;
}

std::vector<SameWork> same_work(const std::vector<RunGroup>& groups) {
  std::vector<SameWork> sets;
  std::map<std::vector<std::string>, SameWork> on_one_rank;
  for (const RunGroup& group : groups) {
    const Run& run = group.first();
    sets.push_back({run.model, "repeats of a cell", group});
    if (run.ranks != 1 || !is_known_work(run) || !is_recorded(run) ||
        !mode_named(run.mode).changes.empty())
      continue;
    SameWork& control = on_one_rank[work_on_one_rank(run)];
    control.model = run.model;
    control.what = "runs on one rank";
    control.runs.repeats.insert(control.runs.repeats.end(), group.repeats.begin(),
                                group.repeats.end());
  }
  for (const auto& control : on_one_rank)
    sets.push_back(control.second);
  return sets;
}

}  // namespace

RunSpreads run_spreads(const std::vector<RunGroup>& groups) {
  RunSpreads spreads;
  for (const SameWork& set : same_work(groups)) {
    RunSpread& spread = spreads[set.model];
    const std::vector<double> starts_s = iteration_times(set.runs).starts_s;
    if (starts_s.size() < 2) continue;
    const auto [least, most] = std::ranges::minmax_element(starts_s);
    if (spread.known() && *most / *least <= spread.factor) continue;
    spread = {*most / *least, fmt::format("{} {}, {} to {}", starts_s.size(), set.what,
                                          format_duration(*least), format_duration(*most))};
  }
  return spreads;
}

std::string difference_text(Difference difference) {
  constexpr std::array kTexts = {
      "n/a",           "too few",          "one start", "within the spread",
      "no difference", "within the noise", "faster",    "slower"};
  return kTexts[static_cast<std::size_t>(difference)];
}

Difference difference_of(const Estimate& ratio, const RunSpread& spread) {
  if (!std::isfinite(ratio.value)) return Difference::kUnknown;
  if (!ratio.has_interval()) {
    if (ratio.value <= spread.factor && ratio.value >= 1 / spread.factor)
      return Difference::kWithinSpread;
    return ratio.count < 2 ? Difference::kOneRunEach : Difference::kTooFew;
  }
  if (ratio.holds(1)) return Difference::kNone;
  return ratio.value < 1 ? Difference::kFaster : Difference::kSlower;
}

bool is_below(const Estimate& one, const Estimate& other, const RunSpread& spread) {
  if (one.has_interval() && other.has_interval()) return one.high < other.low;
  return spread.known() && one.value * spread.factor < other.value;
}

std::string spread_text(const RunSpread& spread, const std::string& model) {
  return fmt::format("runs of the same work differ by up to {:.1f} % ({}: {})",
                     1e2 * (spread.factor - 1), model, spread.of);
}

}  // namespace gradsync::report
