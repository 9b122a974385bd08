#pragma once

#include <chrono>

namespace gradsync {

/// Seconds on the steady clock of this host. Only differences mean anything; clocks of different
/// hosts are related by RankPlace::clock_offset_s.
inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Seconds since it was made or restarted.
class Stopwatch {
 public:
  double elapsed_s() const { return now_s() - begin_s_; }
  double begin_s() const { return begin_s_; }
  /// Returns what had elapsed and starts again at 0, with no gap between the two.
  double restart_s() {
    const double now = now_s();
    const double elapsed = now - begin_s_;
    begin_s_ = now;
    return elapsed;
  }

 private:
  double begin_s_ = now_s();
};

}  // namespace gradsync
