// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/figures/run_group.h"
#include "stats/estimate.h"

/// Speedup, efficiency and the split that is derived from epoch times alone: pure formulas, used
/// for run files and for published tables alike. Times in one unit, any; a result is NaN where an
/// input is NaN, a time is not positive or a count of ranks is below one. Nothing is clipped.
namespace gradsync::report {

/// T(base)/T(n), also above n ("super-linear").
double speedup(double base_time, double time);

/// The derived split, from the time of one rank and of n ranks over the same images.
double derived_compute(double time_of_one, double ranks);                     ///< T(1)/n
double derived_communication(double time_of_one, double time, double ranks);  ///< T(n) − T(1)/n

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

/// "none, 1 x 128": mode, ranks and images per rank.
std::string base_text(const RunGroup& base);

/// What group and base do not have in common though a fair comparison would, e.g. "threads 2 in
/// the base, 1 here"; empty if nothing.
std::string unfairness(const Comparison& comparison);

/// How one of two times differs from the other, by the interval of their ratio.
enum class Difference {
  kUnknown,       ///< a sample has no value
  kTooFew,        ///< a sample has not the 6 values that an interval needs
  kNone,          ///< the interval holds 1
  kOneRunEach,    ///< it does not, and how far runs of the same work differ is not known
  kWithinSpread,  ///< it does not, but no more than runs of the same work differ
  kFaster,
  kSlower
};
/// "n/a", "too few", "no difference", "one run each", "within the spread", "faster", "slower".
std::string difference_text(Difference difference);

/// Difference of the time above the line of `ratio` from the one below it, by the 95 % interval
/// alone.
Difference difference_of(const Estimate& ratio);

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

/// How far runs of the same work lie apart, which the interval over the iterations of one run does
/// not show. Runs of the same work are the repeats of a cell, and the runs on one rank that differ
/// only in the mode or in what is between ranks: one rank exchanges nothing, so these are a
/// negative control.
struct RunSpread {
  double factor = kNotMeasured;  ///< largest / smallest median iteration; NaN without such runs
  std::string of;                ///< "6 runs on one rank, 285 ms to 349 ms"
  bool known() const { return factor >= 1; }
};

/// By model, the largest of its sets of runs of the same work.
using RunSpreads = std::map<std::string, RunSpread>;
RunSpreads run_spreads(const std::vector<RunGroup>& groups);

/// Difference by the interval made longer by the spread to both sides.
Difference difference_of(const Estimate& ratio, const RunSpread& spread);

/// "runs of the same work differ by up to 22 % (lenet: 6 runs on one rank, 285 ms to 349 ms)".
std::string spread_text(const RunSpread& spread, const std::string& model);

}  // namespace gradsync::report
