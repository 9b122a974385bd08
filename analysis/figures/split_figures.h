#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "analysis/figures/comparisons.h"
#include "analysis/read/columns.h"
#include "record/reader.h"

namespace gradsync::report {

/// How much of an iteration its parts may lack where a table says that they sum to it.
inline constexpr double kLargestGap = 0.01;

/// Where the time of one rank went: the mean of each phase over the steady iterations. NaN where a
/// phase was not measured.
struct SplitFigures {
  std::size_t iterations = 0;          ///< that the means are over
  std::array<double, kPhases> mean_s;  ///< by Phase
  /// Of the straggler wait what is a part of the iteration beside communication: all of it, or none
  /// in runs that count it as communication.
  double wait_part_s = kNotMeasured;
  bool waits_apart = true;  ///< false: waiting is in hidden and exposed

  SplitFigures();
  double operator[](Phase phase) const { return mean_s[static_cast<std::size_t>(phase)]; }
  /// Straggler wait; NaN where it was counted as communication, which is not the same as none.
  double wait_s() const { return waits_apart ? wait_part_s : kNotMeasured; }
  /// Of the iteration, in percent.
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
inline std::vector<SplitFigures> split_figures(RunReader& run) {
  return split_figures(run, steady_rows(run));
}

/// The mean over the ranks, each of them counting the same.
SplitFigures mean_of(const std::vector<SplitFigures>& ranks);

/// The split of a group's iteration as reports derive it that know only times (scaling.h).
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

}  // namespace gradsync::report
