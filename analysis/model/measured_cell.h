#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/figures/run_group.h"
#include "analysis/read/run_set.h"

namespace gradsync::report {

/// What one cell of a study measured, repeats taken together, warm-up left out.
struct MeasuredCell {
  RunGroup group;
  /// Model, mode and every setting that changes the time of an iteration, but ranks and batch:
  /// cells of one family are one scaling law.
  std::string family;
  /// One value an iteration, in seconds. `iteration_s` is of the slowest rank, since the ranks of a
  /// synchronous step end together; the parts are means over the ranks that measured them.
  /// `stalled_s` is exposed communication and straggler wait, which older files do not tell apart.
  std::vector<double> iteration_s, compute_s, exposed_s, stalled_s;
  double median_iteration_s = kNotMeasured;
  double median_compute_s = kNotMeasured, median_exposed_s = kNotMeasured;
  /// Of an iteration, means over iterations and ranks: as the tables summary and split show them.
  double exposed_share = kNotMeasured, compute_share = kNotMeasured;
  /// Straggler wait where it is no part of communication; what of the rest waits for data.
  double wait_share = kNotMeasured, data_share = kNotMeasured;
  /// Whether ranks of any of the runs waited for a core (core_shortage). Such cells are families of
  /// their own, and nothing is concluded from them about scaling or bottlenecks.
  bool short_of_cores = false;
  /// "lenet, ddp, 4 ranks, 64 images per rank", with the settings where several cells are such.
  std::string name = {};

  const Run& run() const { return group.first(); }
  std::int64_t ranks() const { return run().ranks; }
  /// Whether its runs tell straggler wait from communication: schema 1 does not, nor do traces
  /// without those of some ranks.
  bool waits_apart() const { return std::isfinite(wait_share); }
  std::int64_t batch_per_rank() const { return run().batch_per_rank; }
};

/// One entry a group of repeats, in the order of the set.
std::vector<MeasuredCell> measured_cells(const RunSet& set);

/// One value for each iteration of a group that is not warm-up (the rule of steady_values): the
/// mean over the ranks that measured the phase, NaN where none did.
std::vector<double> steady_rank_means(const RunGroup& group, Phase phase);

/// Whether an iteration counts: the rule of steady_values.
bool is_steady(const Run& run, std::size_t row);

}  // namespace gradsync::report
