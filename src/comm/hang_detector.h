#pragma once

#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/process.h"
#include "comm/deadline_guard.h"
#include "comm/node_messages.h"
#include "comm/status_board.h"
#include "comm/watchdog.h"
#include "comm/watched_phases.h"

namespace gradsync {

/// The thread of a watchdog: looks ten times a second how long this rank has waited, and finds out
/// what the others do when that is too long.
///
/// Time counts only while the process runs, so a job that is suspended and continued as a whole
/// goes through. Every rank keeps its status in shared memory of its node (StatusBoard), so that
/// the last phase of a stopped or dead process can still be read. The lowest rank of a node that
/// runs speaks for the node (NodeMessages). The lowest speaker that answers reports, unless a
/// missing rank comes within the grace period, or all missing ranks are busy with I/O within the
/// limit of that. Where MPI has no MPI_THREAD_MULTIPLE only ranks of one node know of each other.
class HangDetector {
 public:
  /// Collective over the session's ranks. `state` must outlive it.
  HangDetector(const Session& session, const WatchState& state, MPI_Comm node, Watchdog::End end);
  /// Collective.
  ~HangDetector();
  HangDetector(const HangDetector&) = delete;
  HangDetector& operator=(const HangDetector&) = delete;

  RankStatus& mine() { return board_.mine(); }

 private:
  void watch();
  void look();
  void update_own(double running_s);
  std::vector<RankReport> all_reports(const std::vector<RankReport>& node, double running_s) const;
  void judge(const std::vector<RankReport>& node, double running_s);
  bool lasts_long(double running_s) const;
  bool excused_by_disk(const std::vector<RankReport>& all, double running_s);
  bool reported_by_another(double running_s);

  const Session& session_;
  const WatchState& state_;
  Watchdog::End end_;
  std::vector<int> node_ranks_;
  std::vector<std::string> hosts_;  ///< of all ranks
  StatusBoard board_;
  NodeMessages messages_;

  RunningTime ran_;
  std::int64_t wait_seen_ = 0, phase_seen_ = 0;
  double wait_begin_s_ = 0, phase_begin_s_ = 0, work_begin_s_ = 0, work_s_ = 0;
  double expired_since_s_ = -1;  ///< since when a wait anywhere has been too long; -1: none
  double reported_s_ = -1;       ///< when this rank first saw that another of its node has reported
  /// When a disk was waited for last: from then on the ranks have a whole limit to meet.
  double disk_until_s_ = -std::numeric_limits<double>::infinity();
  std::optional<DefaultSignal> term_;
  bool ended_ = false;

  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace gradsync
