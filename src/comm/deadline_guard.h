#pragma once

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "base/error.h"

namespace gradsync {

/// Ends this process with a message if it lives for longer than a limit: around MPI_Init and
/// MPI_Finalize, where no watchdog can stand. Counts only time during which the process ran. Ranks
/// report one after the other, the lowest first, so that the launcher ends the job after one
/// message: from one second before the limit SIGTERM ends the process, also one that takes it for a
/// request to stop.
class DeadlineGuard {
 public:
  DeadlineGuard(std::string program, Error error, double limit_s, int rank);
  ~DeadlineGuard();
  DeadlineGuard(const DeadlineGuard&) = delete;
  DeadlineGuard& operator=(const DeadlineGuard&) = delete;

 private:
  void watch(double limit_s, double turn_s);

  std::string program_;
  Error error_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread thread_;
};

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
