#pragma once

#include <string>
#include <vector>

#include "analysis/run_set.h"

namespace gradsync {

/// Repeats: runs of one cell of a study, equal in model, mode with its own settings (granularity,
/// bucket sizes, wire type), ranks, hosts, batch, accumulation, precision and threads.
struct RunGroup {
  std::vector<const Run*> repeats;  ///< at least one, by time of creation
  const Run& first() const { return *repeats.front(); }
};

/// In the order of the set. Groups never mix what must not be mixed: see require_mergeable.
std::vector<RunGroup> group_runs(const RunSet& set);

/// The files of a group's runs, with ", " between.
std::string sources_of(const RunGroup& group);

/// The values of one phase of all repeats, warm-up left out: an iteration counts as its slowest
/// rank, since the ranks of a synchronous step end together. Warm-up is what the run flags, at
/// least the first iteration.
std::vector<double> steady_values(const RunGroup& group, Phase phase);

}  // namespace gradsync
