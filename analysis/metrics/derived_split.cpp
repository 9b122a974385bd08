#include "analysis/metrics/derived_split.h"

#include <fmt/format.h>

#include "analysis/metrics/scaling.h"
#include "options/modes.h"

namespace gradsync::report {

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
