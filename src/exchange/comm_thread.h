#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace gradsync {

/// One thread that runs the jobs it is given, in order: the only one that communicates between
/// `submit` and `drain`.
class CommThread {
 public:
  CommThread();
  /// Waits for the jobs that are under way; when an exception is unwinding it leaves the thread to
  /// the abort that follows, since a collective whose peers are gone never returns. So jobs hold
  /// what they work on.
  ~CommThread();
  CommThread(const CommThread&) = delete;
  CommThread& operator=(const CommThread&) = delete;

  /// Returns the job's number for `wait_for`.
  std::uint64_t submit(std::function<void()> job);

  /// Returns when the job of this number, and all before it, have run. Rethrows the first exception
  /// of a job.
  void wait_for(std::uint64_t number);

  /// Returns when this job, and all that were submitted before it, have run. Rethrows what it
  /// throws.
  void run(const std::function<void()>& job);

  /// Returns when every submitted job has run. Rethrows the first exception of a job.
  void drain();

 private:
  struct Queue;
  static void work(const std::shared_ptr<Queue>& queue);

  std::shared_ptr<Queue> queue_;
  std::thread thread_;
};

}  // namespace gradsync
