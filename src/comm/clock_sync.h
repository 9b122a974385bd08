#pragma once

#include <functional>

#include "comm/session.h"
#include "stats/clock.h"

namespace gradsync {

/// Difference between this rank's steady clock and rank 0's.
struct ClockOffset {
  double offset_s = 0;       ///< add to this rank's clock to read rank 0's
  double uncertainty_s = 0;  ///< half the shortest round trip: the true offset is within it
};

/// Cristian's algorithm (1989) with the shortest of `round_trips` exchanges with rank 0, one rank
/// after the other. `clock` gives this rank's time in seconds. Collective.
ClockOffset measure_clock_offset(const Session& session, int round_trips = 50,
                                 const std::function<double()>& clock = now_s);

}  // namespace gradsync
