#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "comm/launcher.h"

namespace gradsync::check {

/// Whether no MPI could find the other ranks: srun started several and gave neither PMIx nor PMI.
/// Open MPI 4 then ends the process in MPI_Init with its own text and code 1, Open MPI 5 makes each
/// process rank 0 of 1.
bool cannot_start(const Launcher& launcher);

/// Ends this process with kEnvironment if so; the first one tells it.
void end_if_it_cannot_start(const Launcher& launcher);

/// Ends this process with kEnvironment and a message if it still lives `patience_s` after it was
/// made: around MPI_Init, where the watchdog does not stand yet and a rank whose peers never come
/// waits for ever.
class StartGuard {
 public:
  explicit StartGuard(double patience_s);
  ~StartGuard();
  StartGuard(const StartGuard&) = delete;
  StartGuard& operator=(const StartGuard&) = delete;

 private:
  void watch(double patience_s);

  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace gradsync::check
