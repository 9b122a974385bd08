#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace gradsync {

/// Reads counters at intervals from a thread of its own. A reading takes well below a millisecond
/// of that thread; the loop of training is not touched.
template <typename Reading>
class PeriodicReader {
 public:
  /// Throws Error kInternal for an interval below 0.1 s.
  PeriodicReader(std::function<Reading()> read, double interval_s)
      : read_(std::move(read)), interval_s_(interval_s) {
    constexpr double kShortest_s = 0.1;
    if (interval_s < kShortest_s)
      throw Error(ExitCode::kInternal, "counters are not read more often than ten times a second");
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  PeriodicReader(const PeriodicReader&) = delete;
  PeriodicReader& operator=(const PeriodicReader&) = delete;

  /// The readings since the last call, and one of now, in order of time.
  std::vector<Reading> take() {
    const std::lock_guard lock(mutex_);
    readings_.push_back(read_());
    return std::exchange(readings_, {});
  }

 private:
  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      readings_.push_back(read_());
      stopped_.wait_for(lock, stop, std::chrono::duration<double>(interval_s_),
                        [] { return false; });
    }
  }

  std::function<Reading()> read_;
  double interval_s_;
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::vector<Reading> readings_;
  std::jthread thread_;  ///< last, so that it ends before what it uses
};

}  // namespace gradsync
