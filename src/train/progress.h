#pragma once

#include <cstdint>
#include <string>

#include "timing/clock.h"

namespace gradsync {

/// The live line of rank 0 on a terminal's stderr: epoch, iteration, loss, rate, time left. Silent
/// where stderr is no terminal and on other ranks.
class ProgressLine {
 public:
  ProgressLine(bool shown, std::int64_t iterations_in_all);
  /// So many were done before this process; the time left is told from those after them.
  void begin_at(std::int64_t iterations_done) { before_ = iterations_done; }
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void update(std::int64_t epoch, std::int64_t iterations_done, double loss,
              double images_per_second);
  /// Removes the line, so that something else can be printed.
  void clear();

 private:
  bool shown_, drawn_ = false;
  std::int64_t total_, before_ = 0;
  Stopwatch since_start_, since_drawn_;
};

}  // namespace gradsync
