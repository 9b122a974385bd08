#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "support/error.h"

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

}  // namespace gradsync
