#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include <mpi.h>

#include "comm/hang_report.h"
#include "comm/shared_window.h"

namespace gradsync {

/// Status of one rank in the shared memory of its node: only atomics, written by its own rank, read
/// by every rank of the node, also when this process is stopped or dead.
struct alignas(64) RankStatus {
  std::atomic<std::int64_t> iteration{0}, sequence{0};
  std::atomic<std::int32_t> kind{-1}, pid{0};
  std::atomic<std::uint64_t> pid_namespace{0};  ///< that `pid` is a number of
  std::atomic<std::uint64_t> cma_namespace{0};
  std::atomic<Activity> activity{Activity::kStarting};
  std::atomic<WatchedPhase> phase{WatchedPhase::kTraining};
  std::atomic<std::int64_t> ticks{0};  ///< of its watchdog
  std::atomic<double> waited_s{0}, limit_s{0}, phase_s{0};
  std::atomic<bool> expired{false}, watched{true}, has_why{false};
  std::atomic<bool> reports{false};  ///< has ended the job as a hang
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
  /// Of all ranks of the node in order, with the states of their processes.
  std::vector<RankReport> reports(double running_s) const;
  /// Whether this rank is the lowest of the node whose process runs and is watched.
  bool leads(const std::vector<RankReport>& reports) const;
  /// Whether another rank of the node has reported, also if its process is gone since.
  bool another_reports() const;
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

}  // namespace gradsync
