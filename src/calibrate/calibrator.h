// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "calibrate/plan.h"
#include "comm/session.h"
#include "comm/watchdog.h"
#include "transport/transport.h"

namespace gradsync::calibrate {

/// Throws Error kOutOfMemory, naming the size and the host, if the ranks of a host together would
/// need more than it has left. Collective; the same on all ranks.
void require_memory(const Session& session, const std::vector<PlannedCell>& cells);
/// Why this host does not have it; nothing where it has. Collective.
std::optional<Error> lacking_memory(const Session& session, const std::vector<PlannedCell>& cells);

/// What moves an operation's data when it is called over `transport`, as rows have it. The ways MPI
/// goes are told apart by the operation; other transports of host memory have an all-reduce of
/// their own and leave the rest to MPI.
std::string way_of(const PlannedCell& cell, Transport& transport);

/// Measures collectives on the ranks of a session, over the transport that training uses. On a
/// device calls are timed by events around them on the communication stream.
class Calibrator {
 public:
  /// `lane` is null where the data lies in host memory. All must outlive it.
  Calibrator(const Session& session, Transport& transport, Watchdog& watchdog,
             DeviceLane* lane = nullptr);

  /// One number: warm-up calls, timed calls, results compared. The time of a call is that of its
  /// slowest rank (MPI_MAX, after the last call), or what counts.over_ranks says; data is filled,
  /// and results compared, outside the timed calls. Isolated, each call has fresh data and a
  /// barrier before it. Back to back, data is only filled again where it would leave float32's
  /// range, and the mean is Σ of a rank's calls / calls on the slowest rank (nccl-tests' time).
  /// Collective; the same row on all ranks. `meanwhile` is called on all ranks now and then, where
  /// no call is under way.
  CalibrationRow measure(
      const PlannedCell& cell, const CallCounts& counts,
      const std::function<void()>& meanwhile = [] {});

 private:
  struct Timing;
  /// One call: its time, or the marks from which the time is read after the second one.
  struct Call {
    double time_s = 0;
    Mark begin = {}, end = {};
  };
  Call call(Operation& operation);
  void settle(Call& call);
  int settled_calls(const CallCounts& counts, double slowest_s) const;
  Timing calls(Operation& operation, bool alone, int count, int checked);
  Timing isolated(Operation& operation, int count, int checked);
  /// Wrong values of a call that is not timed.
  std::int64_t wrong_apart(Operation& operation);
  Timing back_to_back(Operation& operation, int count, int checked);
  void join(Timing& timing, OverRanks over_ranks) const;
  void combine(std::span<double> times_s, OverRanks over_ranks) const;
  double slowest(double time_s) const;

  const Session& session_;
  Transport& transport_;
  Watchdog& watchdog_;
  DeviceLane* lane_;
  CollectiveKind kind_ = CollectiveKind::kBarrier;
  std::function<void()> meanwhile_;
};

}  // namespace gradsync::calibrate
