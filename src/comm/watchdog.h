// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <mpi.h>

#include "base/error.h"
#include "comm/watched_phases.h"
#include "record/run.h"

namespace gradsync {

class HangDetector;
class Session;
struct WatchState;

/// Ends a job that hangs: when a rank has waited inside one collective for longer than the limit of
/// its phase (watched_phases.h), the job ends with kHang and one message that names the missing
/// ranks and what each of them did last. This is the side of the ranks' own threads, which say what
/// they do; a HangDetector looks at it.
class Watchdog {
 public:
  using End = std::function<void(const Error& error)>;

  /// Collective over the session's ranks. `end` gets the error of a hang on the rank that reports;
  /// it is called once, from another thread. `node` joins the ranks that share memory; where that
  /// has no room for their statuses, each rank reports by messages, as a node of its own.
  Watchdog(const Session& session, const WatchLimits& limits, MPI_Comm node, End end);
  /// Collective.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Waits for all ranks: the last collective that is watched.
  void meet_at_end();

  void set_timeout(double timeout_s);
  /// Limit of a collective in the phase that this rank is in.
  double limit_s() const;

  /// Ends the job as a hang without waiting any longer: `why` no rank can ever leave the
  /// collective that this rank is in.
  void expire(const std::string& why);

  /// Tells the other ranks that this one reports why the job ends: what they lose with it is no
  /// news to report as well.
  void reporting();

  /// Two relaxed stores: cheap enough for every phase of every iteration.
  void doing(Activity activity, std::int64_t iteration);

 private:
  friend class CollectiveScope;
  friend class LaunchScope;
  friend class WatchdogTimeoutExtension;

  void enter(CollectiveKind kind, std::int64_t iteration, bool counts);
  void leave();
  void begin_wait_in_launch(Activity activity);
  WatchedPhase begin_phase(WatchedPhase phase);

  const Session& session_;
  std::unique_ptr<WatchState> state_;
  std::unique_ptr<HangDetector> detector_;
};

/// While it lives this rank waits in a collective, which the watchdog limits. Inside another one it
/// only begins the wait again: a collective of several steps may take the limit for each.
class CollectiveScope {
 public:
  /// Whether it is a step in the count of collectives, which is equal on ranks that agree. Not what
  /// only some ranks wait in.
  enum class Counts { kYes, kNo };

  CollectiveScope(Watchdog& watchdog, CollectiveKind kind, std::int64_t iteration = -1,
                  Counts counts = Counts::kYes)
      : watchdog_(watchdog) {
    watchdog_.enter(kind, iteration, counts == Counts::kYes);
  }
  ~CollectiveScope() { watchdog_.leave(); }
  CollectiveScope(const CollectiveScope&) = delete;
  CollectiveScope& operator=(const CollectiveScope&) = delete;

 private:
  Watchdog& watchdog_;
};

/// While it lives this rank launches work on a device that collectives with other ranks may block.
/// Each activity in it (Watchdog::doing) is a wait of its own: a launch returns only when the
/// device's queue has room, so behind a collective whose peer is gone it never does. Nothing on a
/// null watchdog.
class LaunchScope {
 public:
  /// `in_data`: whether batches are made on the device, too; else kData may wait for a disk.
  LaunchScope(Watchdog* watchdog, bool in_data);
  ~LaunchScope();
  LaunchScope(const LaunchScope&) = delete;
  LaunchScope& operator=(const LaunchScope&) = delete;

 private:
  Watchdog* watchdog_;
};

/// While it lives this rank is in `phase`, and waits for others as long as that allows.
class WatchdogTimeoutExtension {
 public:
  WatchdogTimeoutExtension(Watchdog& watchdog, WatchedPhase phase)
      : watchdog_(watchdog), before_(watchdog.begin_phase(phase)) {}
  ~WatchdogTimeoutExtension() { watchdog_.begin_phase(before_); }
  WatchdogTimeoutExtension(const WatchdogTimeoutExtension&) = delete;
  WatchdogTimeoutExtension& operator=(const WatchdogTimeoutExtension&) = delete;

 private:
  Watchdog& watchdog_;
  WatchedPhase before_;
};

}  // namespace gradsync
