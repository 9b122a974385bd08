#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/read/run_set.h"
#include "machine/host.h"

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

/// With less than this part of a core a rank is short of it.
inline constexpr double kLeastCoreShare = 0.9;

/// Upper bound, by rank, of the part of one core that it got while it did not wait, over the steady
/// iterations but the one that lacked most, Σ min(cpu_time, busy) / Σ busy. Busy is the iteration
/// without waiting for data, for other ranks and for communication, where only waits that spin
/// count as busy; of ranks that are all on one host, at most what they got together of one core,
/// which the job needs at every moment (docs/numbers.md). All threads of the rank together are held
/// against one core, so it is an upper bound for any number of threads. NaN where the run does not
/// record it, and of a rank that computes on a GPU.
std::vector<double> core_shares(const Run& run);

/// Why the times of a run include waiting for a core: "oversubscribed", or "shared host" where a
/// rank got less than kLeastCoreShare of a core. Empty where they do not, as far as it is recorded.
std::string_view core_shortage(const Run& run);

/// Runs that lacked cores for the same reason, on the same host.
struct RunsShortOfCores {
  std::string_view word;         ///< core_shortage()
  std::string text;              ///< "4 ranks with 4 threads had 2 cores on host node1"
  std::vector<const Run*> runs;  ///< at least one
};
std::vector<RunsShortOfCores> runs_short_of_cores(const std::vector<Run>& runs);

}  // namespace gradsync::report
