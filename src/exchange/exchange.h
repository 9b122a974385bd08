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

#include "exchange/await_device.h"
#include "exchange/collective_log.h"
#include "exchange/control_channel.h"
#include "machine/lane.h"
#include "transport/transport.h"

namespace gradsync {

/// The root of gathers, scatters and broadcasts: the rank that writes.
inline constexpr int kRoot = 0;

/// The collectives as the synchronization modes call them: each one passes the CollectiveLog and is
/// timed on its own.
///
/// Not thread-safe: one thread at a time, as for MPI itself.
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
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange() = default;

  int rank() const { return transport_.rank(); }
  int size() const { return transport_.size(); }
  Watchdog& watchdog() { return log_.watchdog(); }
  const Session& session() const { return log_.session(); }

  /// Every collective of this exchange passes it.
  CollectiveLog& log() { return log_; }
  const CollectiveLog& log() const { return log_; }
  /// What ranks exchange outside any timed section.
  ControlChannel& control() { return control_; }
  /// How all-reduce waits from now on: kSleep beside compute that needs every core.
  void set_waiting(Waiting waiting) { waiting_ = waiting; }
  Waiting waiting() const { return waiting_; }

  /// The device's lane, or null: data lies in host memory.
  DeviceLane* lane() { return lane_; }
  /// Whether collectives return before they have run: no thread of their own is needed.
  bool enqueues() const { return transport_.enqueues(); }
  /// Where the thread of the step, or the compute stream, is now.
  Moment now();
  /// From now on the compute stream waits for every collective so far.
  void join();
  /// Returns when the device has come to `mark`. Polls its events instead of waiting in the
  /// runtime, lets MPI make progress meanwhile, and ends the job, as a hang, when the
  /// transport has lost a rank.
  void await(Mark mark, Look look = Look::kPausing);
  /// The same of where the compute stream is now; nothing where data lies in host memory. Before a
  /// call in which the host waits inside a library, where neither a lost rank nor a hang is seen.
  void settle();
  /// Called for each message of gradients on a device, on its communication stream, before it
  /// travels. Returns what was called until now.
  using GradientCheck = std::function<void(std::span<const float>, StreamHandle)>;
  GradientCheck set_gradient_check(GradientCheck check) {
    return std::exchange(gradient_check_, std::move(check));
  }

  /// Averages in place over the ranks. `ready` is when the data was complete (now, if not known);
  /// `iteration_log` is that of the iteration it belongs to, if another one has begun.
  void all_reduce_mean(std::span<float> data, Traffic category, Moment ready = {},
                       IterationLog* iteration_log = nullptr);
  /// Sum in place; the caller scales. For c10d::Reducer.
  void all_reduce_sum(std::span<float> data, Traffic category, Moment ready = {});
  /// The same, by another library: `body` enqueues it on the lane's communication
  /// stream, or behind it.
  void all_reduce_by(std::span<float> data, Traffic category, Moment ready,
                     FunctionRef<void()> body);
  /// Averages in place, traveling as bf16 or fp16; `wire` is scratch of data.size() values.
  void all_reduce_mean_half(std::span<float> data, std::span<std::uint16_t> wire, ValueType type,
                            Traffic category, Moment ready = {},
                            IterationLog* iteration_log = nullptr);
  /// Memory in which all-reduce needs no copy; null where any is as good. Collective.
  std::shared_ptr<std::byte> allocate(std::size_t bytes) {
    const CollectiveScope watched(watchdog(), CollectiveKind::kAllReduce);
    return transport_.allocate(bytes);
  }
  /// Whether all-reduces can be posted, in memory that `allocate` gave.
  bool posts() const { return transport_.posted() != nullptr; }
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

 private:
  /// What a collective moves, and since when it may.
  struct Tensors {
    Traffic category;
    std::span<const float> gradients = {};  ///< looked at before they travel
    Moment ready = {};
    IterationLog* iteration_log = nullptr;  ///< if it is not the last one
  };
  /// An all-reduce under way: the transport's number, and which record is its.
  struct Posted {
    std::uint32_t number;
    std::size_t record;
  };
  using Body = FunctionRef<void()>;
  double mean_through_half(std::span<float> data, std::span<std::uint16_t> wire, ValueType type);
  void move(const CollectiveCall& call, const Tensors& tensors, Body body);
  void run_here(const CollectiveCall& call, const Tensors& tensors, IterationLog& iteration_log,
                Body body);
  void enqueue(const CollectiveCall& call, const Tensors& tensors, Body body);
  void note_done(std::uint32_t number);
  void pack(std::span<const float> data, std::span<std::uint16_t> wire, float factor,
            ValueType type) const;
  void unpack(std::span<const std::uint16_t> wire, std::span<float> data, ValueType type) const;

  CollectiveLog log_;
  ControlChannel control_;
  Transport& transport_;
  DeviceLane* lane_;
  Mark last_;  ///< end of the last collective on the device
  GradientCheck gradient_check_;
  Waiting waiting_ = Waiting::kSpin;
  std::vector<Posted> posted_;  ///< few; keeps its memory, as a deque would not
};

}  // namespace gradsync
