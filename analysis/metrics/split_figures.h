#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "analysis/metrics/steady_rows.h"
#include "record/reader.h"

namespace gradsync::report {

/// Where the time of one rank went: the mean of each phase over the steady iterations. NaN where a
/// phase was not measured.
struct SplitFigures {
  std::size_t iterations = 0;          ///< that the means are over
  std::array<double, kPhases> mean_s;  ///< by Phase

  SplitFigures();
  double operator[](Phase phase) const { return mean_s[static_cast<std::size_t>(phase)]; }
  /// Of the iteration, in percent.
  double percent(Phase phase) const;
  /// |compute + exposed + other − iteration| / iteration; NaN where a part was not measured.
  double gap() const;
};

/// One entry a rank.
std::vector<SplitFigures> split_figures(RunReader& run, const SteadyRows& steady);
inline std::vector<SplitFigures> split_figures(RunReader& run) {
  return split_figures(run, steady_rows(run));
}

/// The mean over the ranks, each of them counting the same.
SplitFigures mean_of(const std::vector<SplitFigures>& ranks);

}  // namespace gradsync::report
