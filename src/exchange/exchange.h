// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <mpi.h>

#include "base/function_ref.h"
#include "base/numbers.h"
#include "comm/collective_call.h"
#include "comm/session.h"
#include "comm/watchdog.h"
#include "machine/lane.h"
#include "record/run.h"
#include "stats/clock.h"
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

/// A span from one moment of this rank to another of the same stream.
struct Span {
  Moment begin, end;
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
  double encode_s = kNotMeasured;  ///< in the thread of the step: EncodingScope
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
  /// Makes the control values of the session pass this one, where several of them live.
  void take_control_values();
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
  /// Log of the iteration that began last.
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
  Session::ControlGate control_gate();
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

/// Bytes of the data of a call on one rank.
std::int64_t bytes_of(const CollectiveCall& call);

/// `verify` option text to level. Requires off, init or all.
VerifyLevel verify_level(const std::string& text);

/// The root of gathers, scatters and broadcasts: the rank that writes.
inline constexpr int kRoot = 0;

/// Between two looks at an event: a short sleep, or nothing, where the moment itself is measured.
enum class Look { kPausing, kSpinning };

/// Returns when the device has come to `mark`: looks at its event again and again instead of
/// waiting in the runtime, lets MPI make progress meanwhile, and ends the job, as a hang, when
/// `transport` has lost a rank. Never returns once the transport is abandoned: the events that
/// happen then say nothing.
void await_device(EventRing& ring, Mark mark, Transport& transport, const Session& session,
                  Look look = Look::kPausing);

/// A collective that may run beside compute.
struct Message {
  Collective call;
  Traffic category = Traffic::kGradients;
  std::shared_ptr<const void> memory = {};  ///< keeps the data where it is until it has traveled
  /// The log of the iteration that it belongs to, if it may travel in the next one.
  std::shared_ptr<IterationLog> log = {};
  /// Called when the data has traveled, or with what was thrown instead, by the thread that moved
  /// it.
  std::function<void(std::exception_ptr failure)> done = {};
  /// For another library: enqueues the collective on the lane's communication stream, or behind it.
  std::function<void()> enqueue = {};
};

/// The collectives as the synchronization modes call them: each one passes the CollectiveLog and is
/// timed on its own.
///
/// Used by one thread, as MPI itself. Messages that were started and not finished belong to the
/// exchange: it posts them to the transport, which advances at each further message; or enqueues
/// them on the device; or hands them to a thread that communicates until they are finished. All
/// ranks start the same messages in the same order.
///
/// With a lane the data lies on a device. A collective begins on the lane's communication stream
/// when the compute stream has come to where it is now, or to the moment the caller names; what
/// follows on the compute stream waits for the result, at once or, for a message, from `finish` on.
/// The host waits for nothing, but: before ranks compare a call it waits until no collective is
/// under way on the device, so that two libraries never move tensors at once.
class Exchange {
 public:
  /// `lane`, if there is one, must outlive it.
  Exchange(const Session& session, Transport& transport, VerifyLevel verify,
           DeviceLane* lane = nullptr);
  /// Waits for the messages under way; when an exception is unwinding it leaves them to the abort
  /// that follows, since a collective whose peers are gone never returns.
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  const Session& session() const { return log_.session(); }
  /// Every collective of this exchange passes it.
  CollectiveLog& log() { return log_; }
  /// The device's lane, or null: data lies in host memory.
  DeviceLane* lane() { return lane_; }
  /// Whether collectives return before they have run, on the lane.
  bool enqueues() const { return transport_.enqueues(); }

  /// Where the thread of the step, or the compute stream, is now.
  Moment now();
  /// Returns when the device has come to `mark` (await_device); at once where data lies in host
  /// memory. Called with where the compute stream is now before a library call that blocks, because
  /// a blocked host detects neither a lost rank nor a hang.
  void await(Mark mark, Look look = Look::kPausing);
  /// Called for each message of gradients on a device, on its communication stream, before it
  /// travels. Returns what was called until now.
  using GradientCheck = std::function<void(std::span<const float>, StreamHandle)>;
  GradientCheck set_gradient_check(GradientCheck check) {
    return std::exchange(gradient_check_, std::move(check));
  }

  /// Whether messages in memory of `allocate` are posted.
  bool posts() { return transport_.posted() != nullptr; }

  /// Memory in which all-reduce and its halves need no copy; null where any is as good. Collective.
  std::shared_ptr<std::byte> allocate(std::size_t bytes);

  /// Whether collectives from now on are those of a mode that communicates beside compute: they
  /// wait without taking a core then, unless they can be posted. Returns what it was.
  bool set_overlaps(bool overlaps);

  /// Returns when the collective has run, or is enqueued; takes its turn behind the messages under
  /// way. How it waits is the exchange's choice. Float32 that travels in 16 bits is scaled before,
  /// and turned here where the transport does not.
  void run(const Collective& call, Traffic category);

  /// Begins to move a message whose data is complete at `ready`, and returns its number for
  /// `finish`. A mean, and a half of an all-reduce in place, in memory that `allocate` gave is
  /// posted where the transport can, and this rank's part done of whatever all ranks have posted;
  /// unless it has a log of its own.
  std::uint64_t start(Message message, Moment ready);

  /// Returns when all messages have traveled, on a device in the order of the compute stream; with
  /// a number, when that one has, and all before it that are posted, or not posted, as it is.
  /// Rethrows what a message has thrown. A posted one is recorded from when this rank posted it to
  /// when the last rank had done its part, which this rank may see later.
  void finish(std::uint64_t number = kAllMessages);

 private:
  static constexpr std::uint64_t kAllMessages = std::numeric_limits<std::uint64_t>::max();
  /// In the numbers of messages that are posted.
  static constexpr std::uint64_t kPosted = std::uint64_t{1} << 63;
  /// A posted message under way: its number, that of the transport, and which record is its.
  struct Posted {
    std::uint64_t message;
    std::uint32_t number;
    std::size_t record;
  };
  class Thread;

  void move(const Message& message, Moment ready, Waiting waiting);
  void run_here(const CollectiveCall& call, const Message& message, Moment ready, Waiting waiting);
  void enqueue(const CollectiveCall& call, const Message& message, Moment ready, Waiting waiting);
  double call_transport(const Message& message, Waiting waiting);
  double run_in_16_bits(Collective call);
  std::span<std::uint16_t> scratch(std::size_t count);
  void pack(std::span<const float> data, std::span<std::uint16_t> wire, float factor,
            ValueType type) const;
  void unpack(std::span<const std::uint16_t> wire, std::span<float> data, ValueType type) const;
  std::span<float> postable(const Message& message);
  void post(const Message& message, std::span<float> data, Moment ready);
  void finish_posted(std::uint64_t message);
  void note_done(std::uint32_t number);
  void join(Mark end);
  void join(std::uint64_t number);
  Thread& thread();

  CollectiveLog log_;
  Transport& transport_;
  DeviceLane* lane_;
  Mark last_;  ///< end of the last collective on the device
  GradientCheck gradient_check_;
  bool overlaps_ = false;
  bool warned_ = false;         ///< that memory is short
  std::vector<Posted> posted_;  ///< few; keeps its memory, as a deque would not
  std::uint64_t posts_ = 0;     ///< messages that have been posted
  CollectiveKind last_posted_ = CollectiveKind::kAllReduce;
  std::vector<Mark> enqueued_;  ///< ends of the messages that no `finish` has been for
  std::uint64_t finished_ = 0;  ///< messages that were enqueued before them
  std::vector<std::uint16_t> host_scratch_;
  std::span<std::uint16_t> device_scratch_;
  std::unique_ptr<Thread> thread_;  ///< last: joined before anything its messages use goes
};

/// Times how long a mode takes in host memory to turn gradients into what travels, or back. On a
/// device nothing is timed.
class EncodingScope {
 public:
  explicit EncodingScope(Exchange& exchange)
      : log_(exchange.log()),
        begin_s_(log_.timing() && !exchange.lane() ? now_s() : kNotMeasured) {}
  ~EncodingScope() {
    if (!std::isnan(begin_s_))
      log_.current()->encode_s = std::fmax(log_.current()->encode_s, 0) + now_s() - begin_s_;
  }
  EncodingScope(const EncodingScope&) = delete;
  EncodingScope& operator=(const EncodingScope&) = delete;

 private:
  CollectiveLog& log_;
  double begin_s_;
};

}  // namespace gradsync
