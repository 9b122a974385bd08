#include <fmt/format.h>

#include "analysis/runs/oversubscription.h"
#include "analysis/verdict/clauses.h"

namespace gradsync::report {

/// Says first of which runs the others conclude nothing; none where all had a core for each thread.
Clauses core_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const OversubscribedRuns& some : oversubscribed_runs(input.set.runs)) {
    VerdictClause clause = clause_of(
        "cores.oversubscribed",
        fmt::format(
            "oversubscribed: {}; the times of {} include waiting for a core, so nothing is "
            "concluded from them about scaling or bottlenecks",
            oversubscription_text(some.found),
            some.runs.size() == 1 ? "this run" : fmt::format("these {} runs", some.runs.size())),
        {}, "/topology/affinity, /topology/threads", "threads and cores as the runs record them");
    for (const Run* run : some.runs)
      clause.files.push_back(run->path.string());
    clauses.push_back(std::move(clause));
  }
  return clauses;
}

}  // namespace gradsync::report
