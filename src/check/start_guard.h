#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace gradsync {

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

}  // namespace gradsync
