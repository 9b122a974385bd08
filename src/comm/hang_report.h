// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/watched_phases.h"
#include "record/run.h"

namespace gradsync {

/// Kind of a wait that is no collective: a kernel launch, which blocks while the device's queue is
/// full.
inline constexpr std::int32_t kLaunch = static_cast<std::int32_t>(kCollectiveNames.size());

/// Status of one rank as the watchdogs know it. Plain bytes: travels between nodes.
struct RankReport {
  std::int32_t rank = 0;
  Activity activity = Activity::kStarting;
  WatchedPhase phase = WatchedPhase::kTraining;
  std::int32_t kind = -1;       ///< of the collective that it waits in; -1: none
  std::int64_t iteration = -1;  ///< -1: none has begun, or the program has none
  std::int64_t sequence = 0;    ///< collectives so far, this one included
  double waited_s = 0;          ///< in that collective
  double limit_s = 0;           ///< of that wait
  double phase_s = 0;           ///< in this phase
  /// State letter of /proc/PID/stat, 0: gone, 'F': does not run, '?': not known, as of a process in
  /// another container.
  char process = 0;
  bool expired = false;             ///< waited longer than its limit
  bool answers = false;             ///< false: nothing is known, its node does not answer
  bool reports = false;             ///< has said why the job ends
  std::uint64_t cma_namespace = 0;  ///< as hosts_where_cma_fails takes it

  /// Whether its process exists and is not stopped.
  bool runs() const;
  /// Launching is work until it has taken longer than a wait may.
  bool waits() const { return answers && runs() && kind >= 0 && (kind != kLaunch || expired); }
};

/// Ranks of a hang, as indices into the reports.
struct HangView {
  std::vector<std::size_t> missing;  ///< those that the others wait for
  std::vector<std::size_t> waiting;  ///< those in a collective
};

/// Sorts the ranks of a job of which at least one waits. Missing are ranks that do not answer, that
/// are stopped or gone, and that have not come to the collective that most ranks are in. If there
/// are none, those are missing that are in no collective; and if all are in one, those whose
/// collective is another than that of most.
HangView sort_ranks(const std::vector<RankReport>& reports);

/// Name of an activity in the message.
std::string_view activity_name(Activity activity);

/// Whether the others wait for a disk: every missing rank runs and is busy with I/O, each for less
/// than the limit of its phase, or one for longer.
enum class DiskWait { kNone, kInLimit, kTooLong };
DiskWait disk_wait(const std::vector<RankReport>& reports, const HangView& view,
                   const WatchLimits& limits);

/// "0-3, 7".
std::string rank_list(const std::vector<int>& sorted);

/// The message of a hang; `hosts` by rank. Names all missing ranks.
std::string hang_text(const std::vector<RankReport>& reports, const std::vector<std::string>& hosts,
                      const std::string& why);

/// What to do about it; `hosts` by rank.
std::string hang_fix(const std::vector<RankReport>& reports, const std::vector<std::string>& hosts,
                     const WatchLimits& limits);

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
