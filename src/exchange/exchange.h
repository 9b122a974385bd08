#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/transport.h"
#include "comm/session.h"
#include "comm/watchdog.h"
#include "device/lane.h"
#include "record/collective_call.h"
#include "record/run.h"
#include "support/function_ref.h"

namespace gradsync {

/// The root of gathers, scatters and broadcasts: the rank that writes.
inline constexpr int kRoot = 0;

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
struct IterationBook {
  std::int64_t iteration = 0;
  std::vector<CollectiveRecord> records;
  TrafficBytes traffic{};
};

/// Faults a test can ask for, done to the next collective of this rank.
enum class CollectiveFault { kNone, kSkip, kShort, kOtherType, kOtherRoot };

/// The collectives as the synchronisation modes call them: each one is compared across ranks before
/// it starts (VerifyLevel), watched, timed on its own and counted by what it carries, in the
/// session's ledger too.
///
/// Not thread-safe: one thread at a time, as for MPI itself. The comparison runs before the start
/// stamp, so it is no part of any communication interval.
///
/// With a lane the data lies on a device. A collective begins on the lane's communication stream
/// when the compute stream has come to where it is now, or to the moment the caller names; what
/// follows on the compute stream waits for the result, at once or, where the caller named a moment,
/// from `join` on. The host waits for nothing, but: before ranks compare a call it waits until no
/// collective is under way on the device, so that two libraries never move tensors at once.
class Exchange {
 public:
  /// `lane`, if there is one, must outlive it.
  Exchange(const Session& session, Transport& transport, Watchdog& watchdog, VerifyLevel verify,
           DeviceLane* lane = nullptr);
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
  /// The first iteration of this process, 0 unless the run is resumed: `--verify init` compares
  /// this one and the next.
  void start_at(std::int64_t iteration) { first_iteration_ = iteration; }
  /// From now on collectives are entered in a new book, but for those that name another one.
  void begin_iteration(std::int64_t iteration);
  /// Of the iteration that began last.
  const std::shared_ptr<IterationBook>& book() const { return book_; }

  /// The device's lane, or null: data lies in host memory.
  DeviceLane* lane() { return lane_; }
  /// Whether collectives return before they have run: no thread of their own is needed.
  bool enqueues() const { return transport_.enqueues(); }
  /// Where the thread of the step, or the compute stream, is now.
  Moment now();
  /// From now on the compute stream waits for every collective so far.
  void join();
  /// Returns when the device has come to `mark`. Looks at its events again and again instead of
  /// waiting in the runtime, lets MPI go on meanwhile, and ends the job, as a hang, when the
  /// transport has lost a rank.
  void await(Mark mark);
  /// Called for each message of gradients on a device, on its communication stream, before it
  /// travels. Returns what was called until now.
  using GradientCheck = std::function<void(std::span<const float>, StreamHandle)>;
  GradientCheck set_gradient_check(GradientCheck check) {
    return std::exchange(gradient_check_, std::move(check));
  }

  /// Averages in place over the ranks. `ready` is when the data was complete (now, if not known);
  /// `book` is that of the iteration it belongs to, if another one has begun.
  void all_reduce_mean(std::span<float> data, Traffic category, Moment ready = {},
                       IterationBook* book = nullptr);
  /// Sum in place; the caller scales. What c10d::Reducer asks of a backend.
  void all_reduce_sum(std::span<float> data, Traffic category, Moment ready = {});
  /// The same, moved by somebody else's library: `body` enqueues it on the lane's communication
  /// stream, or behind it.
  void all_reduce_by(std::span<float> data, Traffic category, Moment ready,
                     FunctionRef<void()> body);
  /// Averages in place, travelling as bf16 or fp16; `wire` is scratch of data.size() values.
  void all_reduce_mean_half(std::span<float> data, std::span<std::uint16_t> wire, ValueType type,
                            Traffic category, Moment ready = {}, IterationBook* book = nullptr);
  /// Memory in which all-reduce needs no copy; null where any is as good. Collective.
  std::shared_ptr<std::byte> allocate(std::size_t bytes) {
    const CollectiveScope watched(watchdog_, CollectiveKind::kAllReduce);
    return transport_.allocate(bytes);
  }
  /// Whether all-reduces can be posted, in memory that `allocate` gave.
  bool posts() const { return transport_.posts(); }
  /// Like all_reduce_mean, but returns without waiting, after this rank's part of whatever all
  /// ranks have posted. The result stands after finish_posted.
  void post_all_reduce_mean(std::span<float> data, Traffic category, Moment ready);
  /// Returns when all that was posted is done. One is recorded from when this rank posted it to
  /// when the last rank had done its part, which this rank may see later.
  void finish_posted();
  void reduce_sum(std::span<float> data, int root, Traffic category);
  void broadcast(std::span<std::byte> data, int root, Traffic category);
  void broadcast(std::span<float> data, int root, Traffic category);
  /// `all` is used on root only: size() × one.size() values, in order of rank.
  void gather(std::span<const float> one, std::span<float> all, int root, Traffic category);
  void scatter(std::span<const float> all, std::span<float> one, int root, Traffic category);

  /// Sums over the ranks outside any timed section: metrics and flags.
  void sum_metrics(std::span<double> values);
  /// The largest value over the ranks, of each, outside any timed section.
  void maximum(std::span<double> values);
  /// Gathers equal-sized blocks of bytes on rank 0 and hands `verdict` of rank 0 to all: what the
  /// ranks tell each other between iterations. `all` is used on rank 0 only.
  void gather_control(std::span<const std::byte> one, std::span<std::byte> all);
  void broadcast_control(std::span<std::byte> verdict);
  /// Moves `bytes` from one rank to another, outside any timed section; all ranks call it, and it
  /// is used on these two only.
  void move_control(std::span<std::byte> bytes, int from, int to);

  /// While it lives, what counts as control is counted in another category.
  class ControlScope {
   public:
    ControlScope(Exchange& exchange, Traffic category)
        : exchange_(exchange), before_(exchange.control_) {
      exchange.control_ = category;
    }
    ~ControlScope() { exchange_.control_ = before_; }
    ControlScope(const ControlScope&) = delete;
    ControlScope& operator=(const ControlScope&) = delete;

   private:
    Exchange& exchange_;
    Traffic before_;
  };

  const std::vector<CollectiveRecord>& records() const { return book_->records; }
  const TrafficBytes& traffic() const { return book_->traffic; }

  void inject(CollectiveFault fault) { fault_ = fault; }

 private:
  /// What a collective moves, and since when it may.
  struct Tensors {
    Traffic category;
    std::span<const float> gradients = {};  ///< looked at before they travel
    Moment ready = {};
    IterationBook* book = nullptr;  ///< if it is not the last one
  };
  /// An all-reduce under way: the transport's number, and which record is its.
  struct Posted {
    std::uint32_t number;
    std::size_t record;
  };
  using Body = FunctionRef<void()>;
  double mean_through_half(std::span<float> data, std::span<std::uint16_t> wire, ValueType type);
  void move(const CollectiveCall& call, const Tensors& tensors, Body body);
  void control(const CollectiveCall& call, Traffic category, Body body);
  void begin(CollectiveCall call, const IterationBook& book,
             FunctionRef<void(const CollectiveCall&)> body);
  void run_here(const CollectiveCall& call, const Tensors& tensors, IterationBook& book, Body body);
  void enqueue(const CollectiveCall& call, const Tensors& tensors, Body body);
  void note_done(std::uint32_t number);
  void count(const CollectiveCall& call, Traffic category, IterationBook& book);
  void enter_in_ledger(const CollectiveCall& call, Traffic category);
  void pack(std::span<const float> data, std::span<std::uint16_t> wire, float factor,
            ValueType type) const;
  void unpack(std::span<const std::uint16_t> wire, std::span<float> data, ValueType type) const;
  void look_until(Mark mark);
  void compare(const CollectiveCall& call);
  [[noreturn]] void report_disagreement(const CollectiveCall& call);
  bool compares(const CollectiveCall& call) const;
  CollectiveCall faulted(CollectiveCall call);

  const Session& session_;
  Transport& transport_;
  Watchdog& watchdog_;
  VerifyLevel verify_;
  DeviceLane* lane_;
  Mark last_;  ///< end of the last collective on the device
  GradientCheck gradient_check_;
  MPI_Comm comm_ = MPI_COMM_NULL;  ///< for comparisons, metrics and control
  Waiting waiting_ = Waiting::kSpin;
  bool timing_ = true;
  std::uint8_t mode_ = 0;
  std::string mode_name_ = "none";
  std::int64_t first_iteration_ = 0;
  std::shared_ptr<IterationBook> book_ = std::make_shared<IterationBook>();
  std::vector<Posted> posted_;  ///< few; keeps its memory, as a deque would not
  Traffic control_ = Traffic::kControl;
  CollectiveFault fault_ = CollectiveFault::kNone;
};

/// `verify` option text to level. Requires off, init or all.
VerifyLevel verify_level(const std::string& text);

}  // namespace gradsync
