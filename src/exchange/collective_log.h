#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <mpi.h>

#include "base/function_ref.h"
#include "base/numbers.h"
#include "comm/session.h"
#include "comm/watchdog.h"
#include "exchange/collective_call.h"
#include "machine/lane.h"
#include "record/run.h"
#include "transport/transport.h"

namespace gradsync {

/// When ranks compare what they are about to do.
enum class VerifyLevel { kOff, kInit, kAll };

/// A moment of this rank: on its steady clock, or on a stream of its device.
struct Moment {
  double host_s = kNotMeasured;
  Mark mark = {};

  bool known() const { return mark != Mark{} || !std::isnan(host_s); }
};

/// One collective as it was measured on this rank.
struct CollectiveRecord {
  CollectiveKind kind;
  std::int64_t bytes;
  int root;                               ///< −1: none
  double ready_s, start_s, end_s;         ///< on this rank's steady clock; NaN on a device
  Mark ready = {}, start = {}, end = {};  ///< on a device
  double convert_s = kNotMeasured;        ///< of it, for turning values into 16 bits and back
  std::optional<PostedTimes> posted = {};
};

using TrafficBytes = std::array<std::int64_t, kRowCategories>;

/// What the collectives of one iteration were on this rank.
struct IterationLog {
  std::int64_t iteration = 0;
  std::vector<CollectiveRecord> records;
  TrafficBytes traffic{};
};

/// Faults that a test can request, in the next collective of this rank.
enum class CollectiveFault { kNone, kSkip, kShort, kOtherType, kOtherRoot };

/// Knows which collective this rank calls: names it, compares it across ranks before it starts
/// (VerifyLevel), has it watched, and counts it by what it carries, in the session's ledger too.
/// What it measured is in the log of its iteration. While it lives, the control values of the
/// session pass it as well.
///
/// Not thread-safe: one thread at a time, as for MPI itself. Making and ending are collective.
class CollectiveLog {
 public:
  CollectiveLog(const Session& session, VerifyLevel verify);
  ~CollectiveLog();
  CollectiveLog(const CollectiveLog&) = delete;
  CollectiveLog& operator=(const CollectiveLog&) = delete;

  const Session& session() const { return session_; }
  /// Names the mode in fingerprints and messages.
  void set_mode(std::uint8_t index, std::string name);
  /// The first iteration of this process, 0 unless the run is resumed: `--verify init` compares
  /// this one and the next.
  void start_at(std::int64_t iteration) { first_iteration_ = iteration; }
  /// Called before ranks compare a call.
  void before_comparing(std::function<void()> call) { before_comparing_ = std::move(call); }
  void inject(CollectiveFault fault) { fault_ = fault; }

  /// Without it collectives are neither stamped nor recorded: what measuring costs is the
  /// difference.
  void set_timing(bool timing) { timing_ = timing; }
  bool timing() const { return timing_; }
  /// From now on collectives are entered in a new log, except those that name another one.
  void begin_iteration(std::int64_t iteration);
  /// Of the iteration that began last.
  const std::shared_ptr<IterationLog>& current() const { return current_; }
  const std::vector<CollectiveRecord>& records() const { return current_->records; }
  const TrafficBytes& traffic() const { return current_->traffic; }

  /// Runs `body` as the collective `call` of the iteration of `iteration_log`, with the call as it
  /// is after an injected fault; not at all if that is to skip it. The comparison runs before it,
  /// so it is no part of any communication interval.
  void begin(CollectiveCall call, const IterationLog& iteration_log,
             FunctionRef<void(const CollectiveCall&)> body);
  /// Adds the bytes of the call to the ledger.
  void enter_in_ledger(const CollectiveCall& call, Traffic category);
  /// Adds the bytes of the call to the iteration's.
  void count(const CollectiveCall& call, Traffic category, IterationLog& iteration_log);

 private:
  void compare(const CollectiveCall& call);
  [[noreturn]] void report_disagreement(const CollectiveCall& call);
  bool compares(const CollectiveCall& call) const;
  CollectiveCall faulted(CollectiveCall call);

  const Session& session_;
  VerifyLevel verify_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  Session::ControlGate gate_before_;
  std::function<void()> before_comparing_ = [] {};
  bool timing_ = true;
  std::uint8_t mode_ = 0;
  std::string mode_name_ = "none";
  std::int64_t first_iteration_ = 0;
  std::shared_ptr<IterationLog> current_ = std::make_shared<IterationLog>();
  CollectiveFault fault_ = CollectiveFault::kNone;
};

/// A call with everything but its mode and iteration; `root` −1: none.
CollectiveCall call_of(CollectiveKind kind, ValueType type, ReduceOp op, std::size_t count,
                       int root);

/// Of the call's data on one rank.
std::int64_t bytes_of(const CollectiveCall& call);

/// `verify` option text to level. Requires off, init or all.
VerifyLevel verify_level(const std::string& text);

}  // namespace gradsync
