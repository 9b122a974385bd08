#pragma once

#include <map>
#include <string>
#include <vector>

#include "analysis/metrics/comparisons.h"
#include "analysis/metrics/split_figures.h"

namespace gradsync::report {

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
