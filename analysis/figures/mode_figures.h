#pragma once

#include <cstdint>
#include <vector>

#include "analysis/read/columns.h"
#include "record/reader.h"
#include "stats/estimate.h"
#include "stats/statistics.h"

namespace gradsync::report {

/// What published comparisons of modes give for one rank of a run. NaN: the run does not hold it.
struct ModeFigures {
  std::vector<double> loss_at;                ///< one for each point asked for
  double mean_loss = Statistics::kNone;       ///< over all iterations, weighted by their samples
  double train_accuracy = Statistics::kNone;  ///< of the last epoch, 0 to 1
  double test_accuracy = Statistics::kNone;   ///< at the last evaluation, 0 to 1
  double test_loss = Statistics::kNone;       ///< likewise
  double mean_s = Statistics::kNone;          ///< iteration time without the first
  Estimate median_s;                          ///< of the steady iterations, with its interval
  Statistics steady_s;                        ///< iteration time over the steady iterations
  double samples_per_s = Statistics::kNone;   ///< global samples over time, without the first
};

/// One entry a rank. `loss_points` count iterations from 1: point 20 is the 20th iteration.
std::vector<ModeFigures> mode_figures(RunReader& run, const SteadyRows& steady,
                                      const std::vector<std::int64_t>& loss_points);

/// Multiples of `every` up to `longest`, thinned to every 2nd, 3rd, … so that at most `most`
/// remain.
std::vector<std::int64_t> loss_points(std::int64_t longest, std::int64_t every, std::int64_t most);

}  // namespace gradsync::report
