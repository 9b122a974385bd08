#pragma once

#include <vector>

#include "record/run.h"
#include "stats/interval_set.h"

namespace gradsync::report {

/// A phase of one iteration of one rank placed in time, in seconds since the iteration's start.
struct PlacedPhase {
  Phase phase = Phase::kForward;
  std::vector<Interval> pieces;  ///< their lengths sum to what was measured
};

/// Where data, forward, backward and optimizer lay. Only their lengths are recorded, so their
/// places are derived: data begins with the iteration, the optimizer ends with it, forward and
/// backward follow data in this order. Where no collective was beside compute, the rank stood still
/// in its collectives: the phases then go around them. A phase that was not measured, or took no
/// time, is left out.
std::vector<PlacedPhase> place_phases(const RankIteration& rank);

}  // namespace gradsync::report
