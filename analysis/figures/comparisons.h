#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/figures/run_group.h"
#include "stats/estimate.h"

namespace gradsync::report {

/// Strong: the global batch is the base's. Weak: the batch per rank is the base's. Told from the
/// runs themselves; at one rank both hold, and it counts as strong.
enum class Scaling { kStrong, kWeak };
std::string_view scaling_name(Scaling scaling);

/// A group and what it is compared with.
struct Comparison {
  const RunGroup* group;
  const RunGroup* base;
  Scaling scaling;
  bool itself() const { return group == base; }
};

/// For each group, for strong and for weak scaling, up to two bases: one rank without exchange
/// (mode none), and the group's own mode on its fewest ranks. A base has the group's model,
/// precision, accumulation and data set, and of several the one with the most options in common. A
/// group of one rank is compared with itself as well. Runs with --batch-schedule, which have no one
/// batch, are compared with nothing. In the order of the groups.
std::vector<Comparison> comparisons(const std::vector<RunGroup>& groups);

/// "1 rank none, 128 per rank": images per rank.
std::string base_text(const RunGroup& base);

/// What group and base do not have in common though a fair comparison would, e.g. "threads 2 in
/// the base, 1 here"; empty if nothing.
std::string unfairness(const Comparison& comparison);

/// Two samples of times set one against the other.
struct TimeRatio {
  Estimate ratio;         ///< median(times) / median(base)
  std::string_view word;  ///< below
};

/// "faster" or "slower" where the 95 % interval of the ratio leaves out 1; "no difference" where it
/// holds 1; "too few" where a sample has not the 6 values that an interval needs; "n/a" where one
/// has none. `seed` is the bootstrap's.
std::string_view ratio_word(const Estimate& ratio);
TimeRatio time_ratio(std::span<const double> times, std::span<const double> base,
                     std::uint64_t seed);

/// What a time is the time of. Epochs cover the same images whatever the batch; iterations do not.
enum class TimeBasis { kIteration, kTraining, kRunning };
inline constexpr std::array<std::string_view, 3> kTimeBasisNames = {"iteration", "training time",
                                                                    "running time"};
std::string_view time_basis_name(TimeBasis basis);

/// The times of a group's repeats in seconds, slowest rank each:
///   iteration       of the iterations that are not warm-up (steady_values)
///   training time   of the whole epochs, the first left out where a run has more than one
///   running time    likewise
/// Empty where the runs hold none.
struct GroupTimes {
  std::array<std::vector<double>, kTimeBasisNames.size()> values_s;
  bool first_epoch_only = false;  ///< the epoch times are of first epochs

  const std::vector<double>& operator[](TimeBasis basis) const {
    return values_s[static_cast<std::size_t>(basis)];
  }
};

GroupTimes group_times(const RunGroup& group);

}  // namespace gradsync::report
