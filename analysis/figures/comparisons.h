// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
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
/// Whether they differ in nothing of that but in how ranks exchange where the trainer chose it.
bool is_fair(const RunGroup& group, const RunGroup& base);

/// What a time is the time of. Epochs cover the same images whatever the batch; iterations do not.
enum class TimeBasis { kIteration, kTraining, kRunning };
inline constexpr std::array<std::string_view, 3> kTimeBasisNames = {"iteration", "training time",
                                                                    "running time"};
std::string_view time_basis_name(TimeBasis basis);

/// Times of one kind, and the median of each start. A start is a job: what one job measured has the
/// state of the machine in common, so the contenders of an experiment are of one start.
struct StartTimes {
  std::vector<double> values_s, starts_s;
  /// Adds the finite ones of another start, if it has any.
  void add(std::vector<double> of_start_s);
};

/// The times of a group's repeats in seconds, slowest rank each:
///   iteration       of the iterations that are not warm-up (steady_values)
///   training time   of the whole epochs, the first ones left out where a run has a later one
///   running time    likewise
/// Empty where the runs hold none.
struct GroupTimes {
  std::array<StartTimes, kTimeBasisNames.size()> of;
  bool first_epoch_only = false;  ///< the epoch times are of first epochs

  const StartTimes& operator[](TimeBasis basis) const {
    return of[static_cast<std::size_t>(basis)];
  }
};

GroupTimes group_times(const RunGroup& group);

/// One time over another. `count` is the number of rounds or of starts that its interval rests on.
struct TimeRatio : Estimate {
  std::string basis;  ///< "24 rounds", "3 jobs", "3 and 5 starts", "one start each"
  /// Jobs within which contenders were compared, per as many images; 0: starts were, by iteration.
  std::size_t jobs = 0;

  const Estimate& estimate() const { return *this; }
};

/// Iterations of one start know nothing of what differs between two starts (docs/numbers.md), so
/// the interval is over the starts: Welch's, of the logarithms of their medians, around the ratio
/// of geometric means. Below kFewestStarts on a side: the ratio of the medians, without an
/// interval.
inline constexpr std::size_t kFewestStarts = 3;
TimeRatio ratio_over_starts(const StartTimes& above, const StartTimes& below,
                            std::size_t comparisons = 1);

/// Median iteration of `above` over that of `below`. Contenders of one experiment are compared
/// within its rounds (contender_ratio); those of several by Student's interval of the logarithms of
/// the ratios that each job gives; other groups by ratio_over_starts. `comparisons`:
/// stats/estimate.h.
TimeRatio time_ratio(const RunGroup& above, const RunGroup& below, std::size_t comparisons = 1);

/// What tables say of these ratios.
inline constexpr const char* kRatioNote =
    "95 % interval of a ratio: contenders of one job (gradsync-train --compare) within their "
    "rounds, else over 3 or more starts a side (Welch, of the logarithms of their medians); one "
    "start each: no interval, repeat the runs or use gradsync-train --compare";

/// How far starts of the same work lie apart, which the iterations of one start do not show. They
/// are the repeats of a cell, and the runs on one rank that differ only in the mode or in what is
/// between ranks: one rank exchanges nothing, so these are a negative control. A mode that encodes
/// what it steps by does so on one rank too, and is none of these.
struct RunSpread {
  double factor = kNotMeasured;  ///< largest / smallest median iteration; NaN without such runs
  std::string of;                ///< "6 runs on one rank, 285 ms to 349 ms"
  bool known() const { return factor >= 1; }
};

/// By model, the largest of its sets of runs of the same work.
using RunSpreads = std::map<std::string, RunSpread>;
RunSpreads run_spreads(const std::vector<RunGroup>& groups);

/// How one of two times differs from the other.
enum class Difference {
  kUnknown,       ///< a sample has no value
  kTooFew,        ///< fewer rounds or starts than an interval needs
  kOneRunEach,    ///< a side has one start alone
  kWithinSpread,  ///< no interval, and the ratio is one that runs of the same work have
  kNone,          ///< the interval holds 1
  kWithinNoise,   ///< it does not, but the job's control differs from its reference by more
  kFaster,
  kSlower
};
/// "n/a", "too few", "one start", "within the spread", "no difference",
/// "within the noise", "faster", "slower".
std::string difference_text(Difference difference);

/// Difference of the time above the line of `ratio` from the one below it: by its interval alone.
Difference difference_of(const Estimate& ratio, const RunSpread& spread);

/// Whether one is less than the other by more than chance: their intervals do not meet, or, where
/// one has none, they differ by more than runs of the same work. False where that is not known.
bool is_below(const Estimate& one, const Estimate& other, const RunSpread& spread);

/// "runs of the same work differ by up to 22 % (lenet: 6 runs on one rank, 285 ms to 349 ms)".
std::string spread_text(const RunSpread& spread, const std::string& model);

}  // namespace gradsync::report
