#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/runs/run_set.h"
#include "host/cores.h"

namespace gradsync::report {

/// Ranks of one host that together have more threads than cores.
struct Oversubscription : CoreShortage {
  std::string host;
  bool operator==(const Oversubscription&) const = default;
};

/// The first host on which ranks have fewer cores than threads (core_shortage). Nothing where every
/// thread can have a core, and where the run does not record its cores or threads.
std::optional<Oversubscription> oversubscription(const std::vector<RankPlace>& topology);

/// "4 ranks with 4 threads had 2 cores on host node1".
std::string oversubscription_text(const Oversubscription& found);

/// Runs that are oversubscribed in the same way.
struct OversubscribedRuns {
  Oversubscription found;
  std::vector<const Run*> runs;  ///< at least one
};
std::vector<OversubscribedRuns> oversubscribed_runs(const std::vector<Run>& runs);

}  // namespace gradsync::report
