#include "analysis/tables/wait_notes.h"

#include "analysis/metrics/split_figures.h"

namespace gradsync::report {

WaitKinds wait_kinds(const RunSet& set) {
  WaitKinds kinds;
  for (const Run& run : set.runs)
    (waits_apart(*run.reader) ? kinds.apart : kinds.within) = true;
  return kinds;
}

std::vector<std::string> wait_notes(const WaitKinds& kinds, const std::string& apart,
                                    const std::string& within) {
  if (!kinds.within) return {apart};
  if (!kinds.apart) return {within};
  return {"runs of schema 2: " + apart, "runs of schema 1: " + within};
}

}  // namespace gradsync::report
