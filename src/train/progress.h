#pragma once

#include <cstdint>
#include <string>

#include "stats/clock.h"

namespace gradsync {

/// What rank 0 prints while it trains: epoch, iteration, loss, rate, remaining time. On a terminal
/// one line of stderr that is overwritten; else a line on standard output each minute. With
/// --log-every N a line each N iterations as well. Silent where it is not `shown`.
class ProgressLog {
 public:
  /// `log_every` is --log-every.
  ProgressLog(bool shown, std::int64_t log_every, std::int64_t iterations_in_all);
  /// So many were done before this process; the remaining time is estimated from those after them.
  void begin_at(std::int64_t iterations_done) { before_ = iterations_done; }
  ~ProgressLog() { clear(); }
  ProgressLog(const ProgressLog&) = delete;
  ProgressLog& operator=(const ProgressLog&) = delete;

  void update(std::int64_t epoch, std::int64_t iterations_done, double loss,
              double images_per_second);
  /// Removes the line, so that something else can be printed.
  void clear();

 private:
  std::string line(std::int64_t epoch, std::int64_t iterations_done, double loss,
                   double images_per_second) const;

  bool shown_, on_terminal_, drawn_ = false;
  std::int64_t log_every_, total_, before_ = 0;
  Stopwatch since_start_, since_drawn_;
};

}  // namespace gradsync
