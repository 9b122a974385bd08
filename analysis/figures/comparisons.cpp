#include "analysis/figures/comparisons.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/epoch_figures.h"
#include "base/parse.h"
#include "options/modes.h"

namespace gradsync::report {

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

bool comparable(const RunGroup& group, const RunGroup& base) {
  if (!is_known_work(group.first()) || group.first().model != base.first().model) return false;
  if (training_images(group.first()) != training_images(base.first())) return false;
  return std::all_of(kSameOptions.begin(), kSameOptions.end(), [&](std::string_view name) {
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

std::size_t options_in_common(const RunGroup& group, const RunGroup& base) {
  return static_cast<std::size_t>(
      std::count_if(cell_options().begin(), cell_options().end(), [&](std::string_view name) {
        return option_value(group.first(), name) == option_value(base.first(), name);
      }));
}

/// The best of the candidates that `fits` holds for: fewest ranks, then most options in common,
/// then the first.
template <typename Fits>
const RunGroup* best_base(const std::vector<RunGroup>& groups, const RunGroup& group,
                          Scaling scaling, Fits fits) {
  const RunGroup* best = nullptr;
  const auto better = [&](const RunGroup& one) {
    const std::int64_t ranks = one.first().ranks, least = best->first().ranks;
    if (ranks != least) return ranks < least;
    return options_in_common(group, one) > options_in_common(group, *best);
  };
  for (const RunGroup& one : groups)
    if (fits(one) && scales(group, one, scaling) && comparable(group, one) &&
        (best == nullptr || better(one)))
      best = &one;
  return best;
}

const RunGroup* compute_alone(const std::vector<RunGroup>& groups, const RunGroup& group,
                              Scaling scaling) {
  return best_base(groups, group, scaling, [&](const RunGroup& one) {
    return !mode_named(one.first().mode).exchanges && one.first().ranks == 1 && &one != &group;
  });
}

/// The group itself, where it runs on one rank.
const RunGroup* in_the_mode(const std::vector<RunGroup>& groups, const RunGroup& group,
                            Scaling scaling) {
  return best_base(groups, group, scaling, [&](const RunGroup& one) {
    if (one.first().mode != group.first().mode) return false;
    return one.first().ranks < group.first().ranks || (&one == &group && one.first().ranks == 1);
  });
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
      const RunGroup* alone = compute_alone(groups, group, scaling);
      const RunGroup* mode = in_the_mode(groups, group, scaling);
      if (alone) all.push_back({&group, alone, scaling});
      if (mode && mode != alone) all.push_back({&group, mode, scaling});
    }
  return all;
}

std::string base_text(const RunGroup& base) {
  const Run& run = base.first();
  return fmt::format("{} {}, {} per rank", count_text(run.ranks, "rank"), run.mode,
                     run.batch_per_rank);
}

std::string unfairness(const Comparison& comparison) {
  std::string text;
  for (const std::string& name : time_options(*comparison.base)) {
    const std::string here = option_value(comparison.group->first(), name);
    const std::string there = option_value(comparison.base->first(), name);
    if (here != there)
      text +=
          fmt::format("{}{} {} in the base, {} here", text.empty() ? "" : "; ", name, there, here);
  }
  return text;
}

std::string_view ratio_word(const Estimate& ratio) {
  if (!std::isfinite(ratio.value)) return "n/a";
  if (!ratio.has_interval()) return "too few";
  if (ratio.holds(1)) return "no difference";
  return ratio.value < 1 ? "faster" : "slower";
}

TimeRatio time_ratio(std::span<const double> times, std::span<const double> base,
                     std::uint64_t seed) {
  const Estimate ratio = ratio_estimate(times, base, seed);
  return {ratio, ratio_word(ratio)};
}

namespace {

std::vector<EpochFigures> whole_epochs(const Run& run) {
  std::vector<EpochFigures> whole = epoch_figures(run);
  std::erase_if(whole, [](const EpochFigures& epoch) { return !epoch.whole; });
  return whole;
}

void keep_finite(std::vector<double>& values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
}

}  // namespace

std::string_view time_basis_name(TimeBasis basis) {
  return kTimeBasisNames[static_cast<std::size_t>(basis)];
}

GroupTimes group_times(const RunGroup& group) {
  GroupTimes times;
  auto& [iteration, training, running] = times.values_s;
  iteration = steady_values(group, Phase::kIteration);
  for (const Run* run : group.repeats) {
    const auto epochs = whole_epochs(*run);
    const bool several = epochs.size() > 1;
    times.first_epoch_only |= epochs.size() == 1 && epochs.front().epoch == 0;
    for (std::size_t e = several ? 1 : 0; e < epochs.size(); ++e) {
      training.push_back(epochs[e].training_s);
      running.push_back(epochs[e].running_s);
    }
  }
  for (auto& values : times.values_s)
    keep_finite(values);
  return times;
}

}  // namespace gradsync::report
