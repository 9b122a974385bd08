#pragma once

#include <vector>

#include "check/check.h"

namespace gradsync::check {

/// One rank's clocks, seconds.
struct ClockFacts {
  double wall_minus_steady_s = 0;  ///< what its clock of the day reads above its steady clock
  double offset_s = 0;             ///< add to its steady clock to read rank 0's
  double uncertainty_s = 0;        ///< of the offset
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ClockFacts, wall_minus_steady_s, offset_s, uncertainty_s)

/// How far this rank's clock of the day is ahead of rank 0's at the same instant:
/// (wall − steady) − (wall − steady of rank 0) − offset.
double ahead_s(const ClockFacts& facts, const ClockFacts& of_root);

std::vector<Finding> judge_clocks(const Ranks<ClockFacts>& ranks);

/// Whether the hosts have the same time of day, and how closely steady clocks can be aligned.
CheckResult check_clocks(Job& job, const CheckOptions& options);

}  // namespace gradsync::check
