#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/figures/run_group.h"
#include "stats/estimate.h"

namespace gradsync::report {

/// How far runs of the same work lie apart, which the interval over the iterations of one run does
/// not show. Runs of the same work are the repeats of a cell, and the runs on one rank that differ
/// only in the mode or in what is between ranks: one rank exchanges nothing, so these are a
/// negative control.
struct RunSpread {
  double factor = kNotMeasured;  ///< largest / smallest median iteration; NaN without such runs
  std::string of;                ///< "6 runs on one rank, 285 ms to 349 ms"
  bool known() const { return factor >= 1; }
};

/// By model, the largest of its sets of runs of the same work.
using RunSpreads = std::map<std::string, RunSpread>;
RunSpreads run_spreads(const std::vector<RunGroup>& groups);

/// "faster" or "slower" where the interval of a ratio, made longer by the spread to both sides,
/// leaves out 1; "within the spread" where only the interval itself does; "one run each" where it
/// does and the spread is not known. Else the words of time_ratio: "no difference", "too few",
/// "n/a".
std::string_view spread_word(const Estimate& ratio, const RunSpread& spread);

/// "runs of the same work differ by up to 22 % (lenet: 6 runs on one rank, 285 ms to 349 ms)".
std::string spread_text(const RunSpread& spread, const std::string& model);

}  // namespace gradsync::report
