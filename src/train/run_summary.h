// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/table.h"
#include "exchange/exchange.h"
#include "record/run.h"
#include "stats/clock.h"

namespace gradsync {

/// What rank 0 prints while it trains: epoch, iteration, loss, rate, remaining time. On a terminal
/// one line of stderr that is overwritten; else a line on standard output after the first iteration
/// behind the warm-up, and each minute. With --log-every N a line each N iterations as well. Silent
/// where it is not `shown`.
class ProgressLog {
 public:
  /// `log_every` is --log-every.
  ProgressLog(bool shown, std::int64_t log_every, std::int64_t iterations_in_all);
  /// Tells how many iterations were done before this process: the remaining time is estimated from
  /// those after them.
  void begin_at(std::int64_t iterations_done) { before_ = iterations_done; }
  ~ProgressLog() { clear(); }
  ProgressLog(const ProgressLog&) = delete;
  ProgressLog& operator=(const ProgressLog&) = delete;

  void update(std::int64_t epoch, std::int64_t iterations_done, double loss,
              double images_per_second, bool warmup);
  /// Removes the line, so that something else can be printed.
  void clear();

 private:
  std::string line(std::int64_t epoch, std::int64_t iterations_done, double loss,
                   double images_per_second) const;

  bool shown_, on_terminal_, drawn_ = false, first_ = true;
  std::int64_t log_every_, total_, before_ = 0;
  Stopwatch since_start_, since_drawn_;
};

/// What one rank says of its own run at the end. Times in seconds.
class RankSummary {
 public:
  /// Adds an iteration; warm-up counts for loss and accuracy but not for times.
  void add(const RankIteration& measured, std::int64_t samples, bool warmup);
  void add_test(double accuracy) { test_accuracy_ = accuracy; }
  /// Accuracy at the last evaluation, also before the run resumed; NaN without one.
  double test_accuracy() const { return test_accuracy_; }

  /// Mean over the iterations after the warm-up.
  double mean_exposed_s() const;

  double mean_loss() const {
    return samples_ ? loss_sum_ / static_cast<double>(samples_) : kNotMeasured;
  }
  double accuracy() const;

  /// The whole summary as numbers, and back, for checkpoints. Throws Error kBadData if they are too
  /// few.
  std::vector<double> state() const;
  void restore(std::span<const double> state);

  /// The figures of all ranks, on rank 0. Collective.
  Table gather(Exchange& exchange, const std::vector<RankPlace>& places, std::int64_t warmup) const;

 private:
  std::vector<double> block() const;

  std::vector<double> iteration_s_;
  double first_s_ = kNotMeasured;  ///< the very first iteration
  double compute_s_ = 0, hidden_s_ = 0, exposed_s_ = 0, wait_s_ = 0, other_s_ = 0;
  double loss_sum_ = 0;
  std::int64_t correct_ = 0, samples_ = 0, timed_ = 0;
  double all_but_first_s_ = 0;
  std::int64_t iterations_ = 0;
  double test_accuracy_ = kNotMeasured;
};

/// What is printed of the table of all ranks: up to 8 rows as they are; of more the slowest, the
/// median and the fastest rank, and the mean of each host, of at most 5.
Table closing_table(const Table& ranks);

}  // namespace gradsync
