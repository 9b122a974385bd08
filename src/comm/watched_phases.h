// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

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
  kFinished
};

/// The parts of a program that differ in how long a rank may wait for the others.
enum class WatchedPhase : std::int32_t {
  kTraining,
  kStartUp,
  kData,
  kResume,
  kTransport,
  kModeCheck,
  kCalibration,
  kChecks,
  kTimedCalls,
  kQuantization,
  kFirstIterations,
  kEvaluation,
  kJournal,
  kCheckpoint,
  kPublishing,
  kShutdown
};

/// What limits the wait in a phase.
enum class LimitRule {
  kTimeout,     ///< the timeout
  kWork,        ///< the timeout; if that is automatic also 20 times this rank's work before it
  kStart,       ///< the timeout or the start limit, whichever is longer
  kInputOutput  ///< the timeout or the I/O limit, whichever is longer
};

struct PhaseEntry {
  WatchedPhase phase;
  std::string_view name;
  LimitRule rule;
  std::string_view covers;
};

/// All phases, in the order of the enumeration: the only table of them.
std::span<const PhaseEntry> watched_phases();
const PhaseEntry& phase_entry(WatchedPhase phase);

/// How long a rank may wait for others, in seconds during which it ran.
struct WatchLimits {
  double timeout_s = 60;
  bool automatic = false;  ///< the timeout follows what this rank measures
  double start_s = 90;
  double io_s = 900;
  /// How long an expired wait must stand before the job ends: a missing rank may still come, and
  /// other nodes must have time to answer.
  double grace_s = 0.5;
  /// The options that set the three, empty where there is none: what to do about a hang.
  std::string_view timeout_option = {}, start_option = {}, io_option = {};
};

/// How much longer than its own work a rank waits for others, where the timeout is automatic.
inline constexpr double kLimitInWork = 20;

/// The limit of one wait in `phase`. `work_s`: how long this rank had worked since its last wait.
double limit_s(WatchedPhase phase, const WatchLimits& limits, double work_s);

/// The option that sets the limit of `phase`; may be empty.
std::string_view limit_option(WatchedPhase phase, const WatchLimits& limits);

/// The table of phases and limits as docs/hangs.md has it.
std::string phase_table();

/// What the threads of a rank have told its watchdog, beside its status in shared memory.
struct WatchState {
  explicit WatchState(const WatchLimits& given) : fixed(given), timeout_s(given.timeout_s) {}

  WatchLimits limits() const {
    WatchLimits now = fixed;
    now.timeout_s = timeout_s;
    return now;
  }

  const WatchLimits fixed;
  std::atomic<double> timeout_s;
  std::atomic<int> depth{0};                      ///< collectives of all threads, inside each other
  std::atomic<std::int64_t> waits{0}, phases{0};  ///< begun or ended so far
  std::atomic<bool> never{false};                 ///< the wait can never end
  /// Whether this rank launches work on a device, and its batches as well.
  std::atomic<bool> launches{false}, launches_data{false};
};

}  // namespace gradsync
