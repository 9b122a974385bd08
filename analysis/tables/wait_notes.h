#pragma once

#include "analysis/runs/run_set.h"

namespace gradsync::report {

/// How the runs of a set count waiting for a late rank: since schema 2 of run files it is a part of
/// the iteration beside communication, before that it was a part of communication.
struct WaitKinds {
  bool apart = false, within = false;
};
WaitKinds wait_kinds(const RunSet& set);

/// Notes about runs of which a set may hold one kind or both: `apart`, `within`, or both, each with
/// the runs it speaks of.
std::vector<std::string> wait_notes(const WaitKinds& kinds, const std::string& apart,
                                    const std::string& within);

}  // namespace gradsync::report
