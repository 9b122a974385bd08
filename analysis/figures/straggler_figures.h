#pragma once

#include <cstddef>
#include <vector>

#include "analysis/read/columns.h"
#include "record/reader.h"

namespace gradsync::report {

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
