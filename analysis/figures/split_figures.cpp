#include "analysis/figures/split_figures.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/scaling.h"
#include "analysis/read/columns.h"
#include "options/modes.h"
#include "stats/statistics.h"

namespace gradsync::report {

SplitFigures::SplitFigures() {
  mean_s.fill(Statistics::kNone);
}

double SplitFigures::percent(Phase phase) const {
  return 1e2 * (*this)[phase] / (*this)[Phase::kIteration];
}

double SplitFigures::parts_s() const {
  return (*this)[Phase::kCompute] + (*this)[Phase::kExposed] + wait_part_s + (*this)[Phase::kOther];
}

double SplitFigures::gap() const {
  return std::abs(parts_s() / (*this)[Phase::kIteration] - 1);
}

bool waits_apart(const RunReader& run) {
  return run.info().schema >= 2;
}

std::string waiting_text(const RunSet& set) {
  std::size_t several = 0, within = 0;
  for (const Run& run : set.runs) {
    if (run.ranks < 2) continue;
    ++several;
    within += waits_apart(*run.reader) ? 0 : 1;
  }
  if (within == 0) return {};
  return fmt::format(
      "communication, hidden and exposed, contains waiting for late ranks{}, and wait is n/a",
      within == several ? ": these are runs of schema 1"
                        : fmt::format(" in {} of {} runs, which are of schema 1", within, several));
}

std::vector<SplitFigures> split_figures(RunReader& run, const SteadyRows& steady) {
  std::vector<SplitFigures> all(run.ranks());
  for (std::size_t phase = 0; phase < kPhases; ++phase) {
    const auto means = rank_means(run, steady, phase_blocks(static_cast<Phase>(phase)));
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      all[rank].mean_s[phase] = means[rank];
  }
  for (SplitFigures& figures : all) {
    figures.iterations = steady.kept();
    figures.waits_apart = waits_apart(run);
    figures.wait_part_s = figures.waits_apart ? figures[Phase::kWait] : 0;
  }
  return all;
}

SplitFigures mean_of(const std::vector<SplitFigures>& ranks) {
  SplitFigures result;
  const auto mean_of_ranks = [&](auto value) {
    std::vector<double> values;
    for (const SplitFigures& rank : ranks)
      values.push_back(value(rank));
    return mean(values);
  };
  for (std::size_t phase = 0; phase < kPhases; ++phase)
    result.mean_s[phase] =
        mean_of_ranks([phase](const SplitFigures& rank) { return rank.mean_s[phase]; });
  result.wait_part_s = mean_of_ranks([](const SplitFigures& rank) { return rank.wait_part_s; });
  result.waits_apart = std::all_of(ranks.begin(), ranks.end(),
                                   [](const SplitFigures& rank) { return rank.waits_apart; });
  if (!ranks.empty()) result.iterations = ranks.front().iterations;
  return result;
}

namespace {

SplitFigures mean_over_repeats(const RunGroup& group) {
  std::vector<SplitFigures> runs;
  std::size_t iterations = 0;
  for (const Run* run : group.repeats) {
    runs.push_back(mean_of(split_figures(*run->reader, run->steady)));
    iterations += runs.back().iterations;
  }
  SplitFigures all = mean_of(runs);
  all.iterations = iterations;
  return all;
}

/// Smaller is better.
int preference(const Comparison& one) {
  return (mode_named(one.base->first().mode).exchanges ? 2 : 0) +
         (one.scaling == Scaling::kStrong ? 0 : 1);
}

}  // namespace

GroupSplits::GroupSplits(const std::vector<RunGroup>& groups) : comparisons_(comparisons(groups)) {}

const SplitFigures& GroupSplits::measured(const RunGroup& group) {
  const auto known = measured_.find(&group);
  if (known != measured_.end()) return known->second;
  return measured_.emplace(&group, mean_over_repeats(group)).first->second;
}

const Comparison* GroupSplits::base_of(const RunGroup& group) const {
  const Comparison* best = nullptr;
  for (const Comparison& one : comparisons_)
    if (one.group == &group && one.base->first().ranks == 1 &&
        (best == nullptr || preference(one) < preference(*best)))
      best = &one;
  return best;
}

DerivedSplit GroupSplits::derived(const RunGroup& group) {
  DerivedSplit split;
  split.sources = sources_of(group);
  const Comparison* one = base_of(group);
  if (one == nullptr) return split;
  const auto images = static_cast<double>(group.first().batch_global);
  const auto base_images = static_cast<double>(one->base->first().batch_global);
  const auto ranks = static_cast<double>(group.first().ranks);
  const double time_s = measured(group)[Phase::kIteration];
  split.base = fmt::format("{} ({})", base_text(*one->base), scaling_name(one->scaling));
  split.one_rank_s = measured(*one->base)[Phase::kIteration] * images / base_images;
  split.compute_s = derived_compute(split.one_rank_s, ranks);
  split.communication_s = derived_communication(split.one_rank_s, time_s, ranks);
  split.unfairness = unfairness(*one);
  if (!one->itself()) split.sources += ", " + sources_of(*one->base);
  return split;
}

}  // namespace gradsync::report
