// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <mpi.h>

#include "base/process.h"
#include "comm/hang_report.h"
#include "comm/session.h"
#include "comm/shared_window.h"
#include "comm/watchdog.h"
#include "comm/watched_phases.h"

namespace gradsync {

/// Status of one rank in the shared memory of its node: only atomics, written by its own rank, read
/// by every rank of the node, also when this process is stopped or dead.
struct alignas(64) RankStatus {
  std::atomic<std::int64_t> iteration{-1}, sequence{0};
  std::atomic<std::int32_t> kind{-1}, pid{0};
  std::atomic<std::uint64_t> pid_namespace{0};  ///< that `pid` is a number of
  std::atomic<std::uint64_t> cma_namespace{0};
  std::atomic<Activity> activity{Activity::kStarting};
  std::atomic<WatchedPhase> phase{WatchedPhase::kTraining};
  std::atomic<std::int64_t> ticks{0};  ///< of its watchdog
  std::atomic<double> waited_s{0}, limit_s{0}, phase_s{0};
  std::atomic<bool> expired{false}, watched{true}, has_why{false};
  std::atomic<bool> reports{false};  ///< has said why the job ends
  char why[256] = {};                ///< complete when has_why is set

  /// Says why the wait of this rank can never end. Once.
  void explain(const std::string& text) {
    text.copy(why, sizeof why - 1);
    has_why = true;
  }
};

/// The status table of one node.
class StatusBoard {
 public:
  /// Collective over `node`; `world_ranks` are those of the node's ranks.
  StatusBoard(MPI_Comm node, std::vector<int> world_ranks);

  RankStatus& mine() { return *statuses_[mine_]; }
  /// The result of one look at the statuses; reads memory only.
  struct Glance {
    bool uneasy = false;   ///< a rank waits, or keeps others waiting, for more than a moment
    bool expired = false;  ///< a rank has waited longer than its limit
  };
  /// `running_s` is time during which the caller ran. Has to be called again and again for
  /// `reports` to find which processes run.
  Glance glance(double running_s);
  /// Reports of all ranks of the node in order, with the states of their processes.
  std::vector<RankReport> reports(double running_s) const;
  /// Whether this rank is the lowest of the node whose process runs and is watched.
  bool leads(const std::vector<RankReport>& reports) const;
  /// What the first rank that knows why the wait can never end says of it; empty if none does.
  std::string why() const;

 private:
  /// When a rank's ticks were last seen to change.
  struct Seen {
    std::int64_t ticks = -1;
    double at_s = 0;
  };

  SharedWindow window_;
  std::size_t mine_ = 0;
  std::vector<RankStatus*> statuses_;  ///< by rank in the node
  std::vector<int> world_ranks_;
  std::vector<Seen> seen_;
};

/// How the watchdogs of different nodes exchange the statuses of their ranks once a wait has
/// expired. One rank speaks for a node; every rank of the other nodes gets what it says, since any
/// of them may have to speak. Nothing is sent while all is well.
class NodeMessages {
 public:
  /// `node_ranks`: the ranks that share memory with this one. Collective over the session's ranks.
  NodeMessages(const Session& session, const std::vector<int>& node_ranks);
  /// Collective.
  ~NodeMessages();
  NodeMessages(const NodeMessages&) = delete;
  NodeMessages& operator=(const NodeMessages&) = delete;

  /// Takes what has come, and waits for nothing: a long message whose sender has been stopped since
  /// never comes. `running_s` here and below: time during which the caller ran.
  void receive(double running_s);
  /// Tells the others, if they have not been told the same lately. `why`: a wait of this node can
  /// never end, or empty. `seldom`: it has been going on for long.
  void tell(const std::vector<RankReport>& node, const std::string& why, bool expired, bool seldom,
            double running_s);
  /// Whether the others believe that a rank of this node has waited too long.
  bool told_expired() const { return told_expired_; }
  /// Whether a node whose speaker is below a rank has told something within `age_s`.
  bool heard(double running_s, double age_s, int below) const;
  /// Whether a node has told of a wait that expired. Another message, which may be the answer to
  /// one of this node, asks for none.
  bool asks(double running_s, double age_s) const;
  /// Why a wait of another node can never end, as told within `age_s`; empty if it can.
  std::string why(double running_s, double age_s) const;
  /// Copies what was told within `age_s` to the places of the ranks in `all`.
  void copy_to(std::vector<RankReport>& all, double running_s, double age_s) const;

 private:
  /// What the speaker of a node has told last.
  struct Told {
    double at_s = 0;
    std::string why;
    std::vector<RankReport> reports;
  };
  /// A message under way to or from a rank: its bytes stay until it has left, or come.
  struct Moving {
    int rank = 0;
    std::vector<char> bytes = {};
    MPI_Request request = MPI_REQUEST_NULL;
  };

  bool possible() const;
  static bool has_moved(Moving& moving);
  void forget_sent();

  const Session& session_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::vector<int> others_;  ///< ranks of other nodes
  std::map<int, Told> told_;
  std::list<Moving> sent_, arriving_;
  double told_at_s_ = -1;
  bool told_expired_ = false;
};

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
  bool is_being_ended(const std::vector<RankReport>& all, double running_s);

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
  double ending_since_s_ = -1;   ///< since when is_being_ended has known; -1: it does not
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
