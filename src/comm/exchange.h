#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/collective_call.h"
#include "comm/session.h"
#include "comm/transport.h"
#include "comm/watchdog.h"
#include "record/run.h"

namespace gradsync {

/// When ranks compare what they are about to do.
enum class VerifyLevel { kOff, kInit, kAll };

/// One collective as it was measured on this rank; times of this rank's steady clock.
struct CollectiveRecord {
  CollectiveKind kind;
  std::int64_t bytes;
  double ready_s, start_s, end_s;
};

using TrafficBytes = std::array<std::int64_t, kTrafficCategories>;

/// Faults a test can ask for, done to the next collective of this rank.
enum class CollectiveFault { kNone, kSkip, kShort, kOtherType, kOtherRoot };

/// The collectives as the synchronisation modes call them: each one is compared across ranks before
/// it starts (VerifyLevel), watched, timed on its own and counted by what it carries.
///
/// Not thread-safe: one thread at a time, as for MPI itself. The comparison runs before the start
/// stamp, so it is no part of any communication interval.
class Exchange {
 public:
  Exchange(const Session& session, Transport& transport, Watchdog& watchdog, VerifyLevel verify);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  int rank() const { return transport_.rank(); }
  int size() const { return transport_.size(); }
  Watchdog& watchdog() { return watchdog_; }
  const Session& session() const { return session_; }

  /// Names the mode in fingerprints and messages.
  void set_mode(std::uint8_t index, std::string name);
  /// How all-reduce waits from now on: kSleep beside compute that needs every core.
  void set_waiting(Waiting waiting) { waiting_ = waiting; }
  Waiting waiting() const { return waiting_; }
  /// Without it collectives are neither stamped nor recorded: what measuring costs is the
  /// difference.
  void set_timing(bool timing) { timing_ = timing; }
  /// Drops the records and counters of the iteration before.
  void begin_iteration(std::int64_t iteration);

  /// Averages in place over the ranks. `ready_s` is when the data was complete (now, if NaN).
  void all_reduce_mean(std::span<float> data, Traffic category, double ready_s = kNotMeasured);
  /// Sum in place; the caller scales. What c10d::Reducer asks of a backend.
  void all_reduce_sum(std::span<float> data, Traffic category, double ready_s = kNotMeasured);
  /// Averages in place, travelling as bf16 or fp16; `wire` is scratch of data.size() values.
  void all_reduce_mean_half(std::span<float> data, std::span<std::uint16_t> wire, ValueType type,
                            Traffic category, double ready_s = kNotMeasured);
  void reduce_sum(std::span<float> data, int root, Traffic category);
  void broadcast(std::span<std::byte> data, int root, Traffic category);
  void broadcast(std::span<float> data, int root, Traffic category);
  /// `all` is used on root only: size() × one.size() values, in order of rank.
  void gather(std::span<const float> one, std::span<float> all, int root, Traffic category);
  void scatter(std::span<const float> all, std::span<float> one, int root, Traffic category);

  /// Sums over the ranks outside any timed section: metrics and flags.
  void sum_metrics(std::span<double> values);
  /// Gathers equal-sized blocks of bytes on rank 0 and hands `verdict` of rank 0 to all: what the
  /// ranks tell each other between iterations. `all` is used on rank 0 only.
  void gather_control(std::span<const std::byte> one, std::span<std::byte> all);
  void broadcast_control(std::span<std::byte> verdict);
  /// Moves `bytes` from one rank to another, outside any timed section; all ranks call it, and it
  /// is used on these two only.
  void move_control(std::span<std::byte> bytes, int from, int to);

  const std::vector<CollectiveRecord>& records() const { return records_; }
  const TrafficBytes& traffic() const { return traffic_; }

  void inject(CollectiveFault fault) { fault_ = fault; }

 private:
  void run(CollectiveCall call, Traffic category, double ready_s, bool timed,
           const std::function<void()>& body);
  void compare(const CollectiveCall& call);
  [[noreturn]] void report_disagreement(const CollectiveCall& call);
  bool compares_now() const;
  CollectiveCall faulted(CollectiveCall call);

  const Session& session_;
  Transport& transport_;
  Watchdog& watchdog_;
  VerifyLevel verify_;
  MPI_Comm comm_ = MPI_COMM_NULL;  ///< for comparisons, metrics and control
  Waiting waiting_ = Waiting::kSpin;
  bool timing_ = true;
  std::uint8_t mode_ = 0;
  std::string mode_name_ = "none";
  std::int64_t iteration_ = 0, sequence_ = 0;
  std::vector<CollectiveRecord> records_;
  TrafficBytes traffic_{};
  CollectiveFault fault_ = CollectiveFault::kNone;
};

/// `verify` option text to level. Requires off, init or all.
VerifyLevel verify_level(const std::string& text);

}  // namespace gradsync
