#pragma once

#include <algorithm>

namespace gradsync {

/// Seconds during which this process ran, counted by a thread that reads the clock again and
/// again. A long pause between two looks means that the process was stopped meanwhile (SIGSTOP,
/// `scontrol suspend`, gang scheduling) and counts as `kLongestStep_s` only.
class RunningTime {
 public:
  static constexpr double kLongestStep_s = 1;

  explicit RunningTime(double now_s) : last_s_(now_s) {}

  /// Returns the total so far.
  double advance_to(double now_s) {
    total_s_ += std::clamp(now_s - last_s_, 0.0, kLongestStep_s);
    last_s_ = now_s;
    return total_s_;
  }

 private:
  double last_s_, total_s_ = 0;
};

}  // namespace gradsync
