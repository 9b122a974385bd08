#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/session.h"

namespace gradsync {

/// What a rank is doing, for the message that ends a hang.
enum class Activity : std::int32_t {
  kStarting,
  kData,
  kForward,
  kBackward,
  kSynchronize,
  kOptimizer,
  kBetween,
  kEvaluating,
  kCheckpoint,
  kFinished
};

/// Ends a job that hangs: when this rank has been inside one collective for longer than the
/// timeout, the job ends with kHang and one message that names the ranks that are not in that
/// collective and what each rank did last.
///
/// Every rank keeps its status on a board in shared memory of its node, so that the last phase of a
/// stopped or dead process is still readable; nodes tell each other over a communicator of the
/// watchdogs' own when the time is up. Lowest living rank of the first four reports.
class Watchdog {
 public:
  /// Collective over the session's ranks. The session must outlive it.
  Watchdog(const Session& session, double timeout_s);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void set_timeout(double timeout_s) { timeout_s_ = timeout_s; }
  double timeout_s() const { return timeout_s_; }

  /// Ends the job as a hang without waiting any longer: `why` no rank can ever leave the
  /// collective.
  void expire(const std::string& why);

  /// Two relaxed stores: cheap enough for every phase of every iteration.
  void doing(Activity activity, std::int64_t iteration);

  /// Around every collective; `sequence` counts them, equal on ranks that agree.
  void enter(std::int32_t kind, std::int64_t sequence, std::int64_t iteration);
  void leave();

 private:
  struct Status;
  struct Report;

  void watch();
  [[noreturn]] void fire();
  Report own_report(const Status& status, int rank) const;
  std::vector<Report> node_reports() const;
  std::vector<Report> collect_reports(double patience_s);
  std::string describe(const std::vector<Report>& reports) const;

  const Session& session_;
  std::atomic<double> timeout_s_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Win window_ = MPI_WIN_NULL;
  Status* mine_ = nullptr;
  std::vector<Status*> board_;    ///< of the ranks of this node, by local rank
  std::vector<int> world_ranks_;  ///< of the same
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::string why_;  ///< given to `expire`
  std::thread thread_;
};

/// Marks one collective for the watchdog while it lives.
class CollectiveScope {
 public:
  CollectiveScope(Watchdog& watchdog, std::int32_t kind, std::int64_t sequence,
                  std::int64_t iteration)
      : watchdog_(watchdog) {
    watchdog_.enter(kind, sequence, iteration);
  }
  ~CollectiveScope() { watchdog_.leave(); }
  CollectiveScope(const CollectiveScope&) = delete;
  CollectiveScope& operator=(const CollectiveScope&) = delete;

 private:
  Watchdog& watchdog_;
};

}  // namespace gradsync
