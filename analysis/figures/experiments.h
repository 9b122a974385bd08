// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analysis/figures/bandwidth.h"
#include "analysis/read/run_set.h"
#include "record/row_figures.h"
#include "stats/estimate.h"

namespace gradsync::report {

/// A contender of `gradsync-train --compare`, with its block of each round of the experiment.
struct ContenderFigures {
  const Run* run = nullptr;
  std::string name;
  bool control = false;                           ///< the reference again
  std::map<std::int64_t, BlockTime> blocks = {};  ///< by round; whole ones, without warm-up
  std::int64_t rounds_per_exchange = 1;           ///< rounds that count as one (row_figures.h)
  std::string against = {};  ///< of one that --advise added: what it was predicted against
  Estimate predicted = {};   ///< the ratio to that one, with the range that was predicted
  double worth = 1;          ///< worth_of
  SentFigures sent = {};     ///< in an iteration of the reference's size

  /// Time over that of another contender, with its interval: the signed-rank interval of the
  /// logarithms of the ratios within the rounds that both have (paired_ratio).
  Estimate ratio_to(const ContenderFigures& other, std::size_t comparisons = 1) const;
  /// Seconds per iteration more than another one, and the parts of that, which add up to it: means
  /// over the middle half of the rounds, by the difference. A machine that stands still for a
  /// moment is in few rounds, and would be most of a mean over all. `other_s` is the mean of the
  /// other one over the same rounds. Not measured where they have no round in common.
  BlockTime more_than(const ContenderFigures& other, double* other_s = nullptr) const;
  /// The rate of a rank's link, in bytes per second, below which this one is faster than `other`,
  /// which sends more: 1/B = 1/B₀ − x, x = (other's time − this one's) / (other's bytes − this
  /// one's), with B₀ the rate at which the other's data moved, times with their paired_estimate
  /// within the rounds. A faster link saves the other one no more than what it waits for its
  /// exchange: infinite, faster at any rate, where x is above that over its bytes. Not measured if
  /// the other one sends no more.
  Estimate pays_below(const ContenderFigures& other) const;
  std::vector<double> times_s() const;  ///< of its blocks, or of rounds that count as one
};

/// The contenders of one job.
struct Experiment {
  std::string id;
  std::vector<ContenderFigures> contenders;  ///< in their order, those that joined last

  /// Null for a name that none has.
  const ContenderFigures* find(const std::string& name) const;
  /// The contender that was named first; null where its file is not in the set.
  const ContenderFigures* reference() const;
  /// The contender that exchanges nothing; null where there is none.
  const ContenderFigures* without_exchange() const;
  /// The fastest contender that exchanges and does not change the training; null where there is
  /// none.
  const ContenderFigures* fastest_exact() const;
  /// Contenders that change the training.
  std::vector<const ContenderFigures*> changing_training() const;
  /// The rate of a rank's link, in bytes per second, below which a contender that changes the
  /// training is faster than each that does not; not measured where one of them sends no more.
  Estimate pays_below(const ContenderFigures& changed) const;
  /// How far the control lies from the reference; of no interval where there is none.
  Estimate control() const;
  /// The largest difference that the control's interval holds: smaller ones are noise.
  double noise() const;
};

/// The experiments of a set, of those contenders whose files are in it.
std::vector<Experiment> experiments(const RunSet& set);
bool has_experiments(const RunSet& set);

/// The job of a run of an experiment; empty for other runs.
std::string experiment_id(const Run& run);
/// Iterations of the reference's size that one of the run is; 1 outside of experiments.
double worth_of(const Run& run);
/// Whether a run is the reference again.
bool is_control(const Run& run);
/// Ratio of two contenders of one job, over the rounds that both have (ratio_to).
Estimate contender_ratio(const Run& above, const Run& below, std::size_t comparisons = 1);

}  // namespace gradsync::report
