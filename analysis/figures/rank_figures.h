// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analysis/figures/comparisons.h"
#include "analysis/read/columns.h"
#include "record/reader.h"
#include "stats/estimate.h"
#include "stats/statistics.h"

namespace gradsync::report {

/// What published comparisons of modes give for one rank of a run. NaN: the run does not hold it.
struct ModeFigures {
  std::vector<double> loss_at;                ///< one for each point asked for
  double mean_loss = Statistics::kNone;       ///< over all iterations, weighted by their samples
  double train_accuracy = Statistics::kNone;  ///< of the last epoch, 0 to 1
  double test_accuracy = Statistics::kNone;   ///< at the last evaluation, 0 to 1
  double test_loss = Statistics::kNone;       ///< likewise
  double mean_s = Statistics::kNone;          ///< iteration time without the first
  Estimate median_s;                          ///< of the steady iterations, or of whole periods
  Statistics steady_s;                        ///< iteration time over the steady iterations
  double samples_per_s = Statistics::kNone;   ///< global samples over time, without the first
};

/// One entry a rank. `loss_points` count iterations from 1: point 20 is the 20th iteration.
std::vector<ModeFigures> mode_figures(RunReader& run, const SteadyRows& steady,
                                      const std::vector<std::int64_t>& loss_points);

/// Test accuracy at the last evaluation, mean over ranks, 0 to 1; NaN without one.
double mean_test_accuracy(const Run& run);

/// Multiples of `every` up to `longest`, thinned to every 2nd, 3rd, … so that at most `most`
/// remain.
std::vector<std::int64_t> loss_points(std::int64_t longest, std::int64_t every, std::int64_t most);

/// How much of an iteration its parts may lack where a table says that they sum to it.
inline constexpr double kLargestGap = 0.01;

/// Mean of each phase of one rank over the steady iterations. NaN where a
/// phase was not measured.
struct SplitFigures {
  std::size_t iterations = 0;          ///< that the means are over
  std::array<double, kPhases> mean_s;  ///< by Phase
  /// Straggler wait that is a part of the iteration beside communication: all of it, or none
  /// in runs that count it as communication.
  double wait_part_s = kNotMeasured;
  bool waits_apart = true;  ///< false: waiting is in hidden and exposed

  SplitFigures();
  double operator[](Phase phase) const { return mean_s[static_cast<std::size_t>(phase)]; }
  /// Straggler wait; NaN where it was counted as communication, which is not the same as none.
  double wait_s() const { return waits_apart ? wait_part_s : kNotMeasured; }
  /// Percentage of the iteration.
  double percent(Phase phase) const;
  /// compute + exposed + straggler wait + other; NaN where a part was not measured.
  double parts_s() const;
  /// |parts − iteration| / iteration.
  double gap() const;
};

/// Whether waiting for a late rank is a part of the run's iterations beside communication, as it is
/// since schema 2; before, it was a part of communication.
bool waits_apart(const RunReader& run);

/// What a reader of communication must know: that it contains waiting for late ranks, in which of
/// the runs on several ranks. Empty if in none.
std::string waiting_text(const RunSet& set);

/// One entry a rank.
std::vector<SplitFigures> split_figures(RunReader& run, const SteadyRows& steady);

/// The mean over the ranks, each of them counting the same.
SplitFigures mean_of(const std::vector<SplitFigures>& ranks);

/// The mean over a group's repeats, each of them counting the same.
SplitFigures mean_over_repeats(const RunGroup& group);

/// Order in which bases of a comparison are taken, the smallest first: those that exchange nothing,
/// and of these strong scaling.
int base_preference(const Comparison& one);

/// The split of a group's iteration as reports derive it that know only times (comparisons.h).
struct DerivedSplit {
  std::string base = "none";              ///< what T(1) is the time of, and the kind of scaling
  double one_rank_s = kNotMeasured;       ///< T(1), of the group's number of images
  double compute_s = kNotMeasured;        ///< T(1)/n
  double communication_s = kNotMeasured;  ///< T(n) − T(1)/n; negative where it comes out so
  std::string unfairness;                 ///< of the comparison
  std::string sources;                    ///< files of the group and of the base
};

/// Both splits of each group, each run read once.
class GroupSplits {
 public:
  /// `groups` must outlive it.
  explicit GroupSplits(const std::vector<RunGroup>& groups);

  /// Mean over steady iterations, ranks and repeats.
  const SplitFigures& measured(const RunGroup& group);

  /// Against a base of 1 rank: of strong scaling before weak, without exchange before the mode's
  /// own. All NaN where there is none.
  DerivedSplit derived(const RunGroup& group);

 private:
  const Comparison* base_of(const RunGroup& group) const;

  std::vector<Comparison> comparisons_;
  std::map<const RunGroup*, SplitFigures> measured_;
};

/// Who waits for whom: one rank, over the steady iterations. NaN: not measured, or one rank only.
struct StragglerFigures {
  double suffered_s = kNotMeasured;      ///< mean `wait` of an iteration
  double caused_s = kNotMeasured;        ///< mean per iteration of what others waited for it
  double caused_percent = kNotMeasured;  ///< of what all ranks caused
  double last_percent = kNotMeasured;    ///< of the collectives, those to which it came last
};

struct Stragglers {
  std::vector<StragglerFigures> ranks;
  std::size_t iterations = 0;
  std::size_t collectives = 0;  ///< with the arrival of at least two ranks
  double undecided_percent =
      kNotMeasured;  ///< of them: the last two closer than the error of their clocks
};

/// A rank arrives at a collective at begin + start, on rank 0's clock. The one that arrives last
/// causes, for each other rank, the time from that rank's arrival to its own. That counts every
/// collective as if no rank could continue before all are there.
Stragglers stragglers(RunReader& run, const SteadyRows& steady);

}  // namespace gradsync::report
