#include <fmt/format.h>

#include "analysis/read/run_set.h"
#include "analysis/verdict/clauses.h"

namespace gradsync::report {

/// Says first of which runs the others conclude nothing; none where all had a core for each thread.
Clauses core_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const RunsShortOfCores& some : runs_short_of_cores(input.set.runs)) {
    const bool shared = some.word != "oversubscribed";
    VerdictClause clause = clause_of(
        shared ? "cores.shared" : "cores.oversubscribed",
        fmt::format(
            "{}: {}; the times of {} include waiting for a core, so nothing is "
            "concluded from them about scaling or bottlenecks",
            some.word, some.text,
            some.runs.size() == 1 ? "this run" : fmt::format("these {} runs", some.runs.size())),
        {}, shared ? "/usage/cpu_time, /time" : "/topology/affinity, /topology/threads",
        shared ? "CPU time of all threads of the rank, as the runs record it"
               : "threads and cores as the runs record them");
    for (const Run* run : some.runs)
      clause.files.push_back(run->path.string());
    clauses.push_back(std::move(clause));
  }
  return clauses;
}

}  // namespace gradsync::report
