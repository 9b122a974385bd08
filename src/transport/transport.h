#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/numbers.h"
#include "stats/bandwidth.h"
#include "stats/interval_set.h"

namespace gradsync {

/// How the calling thread waits for a collective.
enum class Waiting {
  kSpin,   ///< as MPI does: lowest latency, takes a core
  kSleep,  ///< polls with short sleeps: for a thread beside compute that needs every core
};

/// How far posted all-reduces are, by their numbers, which wrap.
struct Progress {
  std::uint32_t own = 0;   ///< up to here this rank has done its part
  std::uint32_t done = 0;  ///< up to here every rank has
};

/// When a posted all-reduce moved data, on this host's steady clock. Before all ranks have begun
/// their parts, and outside of its own, a rank has nothing to move.
struct PostedTimes {
  Interval own;   ///< this rank's part
  Interval last;  ///< from when the last rank began its part to when all had done theirs
};

/// All-reduces that are posted and advance whenever a rank calls `progress`: no thread of their own
/// is needed to run them beside compute. All ranks post in the same order.
class PostedMeans {
 public:
  virtual ~PostedMeans() = default;
  /// `data`, from Transport::allocate, is complete here: the mean over ranks will stand there.
  /// Returns a number for the other calls.
  virtual std::uint32_t post(std::span<float> data) = 0;
  /// Does this rank's part of what all ranks have posted, without waiting.
  virtual Progress progress() = 0;
  /// Returns when what was posted under this number, and all before it, is done.
  virtual void finish(std::uint32_t number, Waiting waiting) = 0;
  /// Of a number that is done, before 64 more have been posted.
  virtual PostedTimes times(std::uint32_t number) = 0;
};

/// Calls only enqueue what a device will do, and return at once.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;
  /// Why what was enqueued can never end (a rank is gone); empty while all is well.
  virtual std::string lost() = 0;
  /// Ends what is under way without the other ranks, before the job is aborted. From any thread.
  virtual void abandon() noexcept = 0;
  /// Whether that was called: what was enqueued ends then, with results that were never computed.
  virtual bool abandoned() const = 0;
};

/// A collective with values of any type, for measurements of what training does not use.
struct TypedCall {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  ValueType type = ValueType::kFloat32;
  /// All-reduce, reduce and broadcast are in place: `send` is not used. Gather, scatter,
  /// all-gather, reduce-scatter and all-to-all: the one holds the values of one rank and the other
  /// those of all ranks in their order, or both do. Send/receive: to the next rank, from the one
  /// before.
  std::span<const std::byte> send = {};
  std::span<std::byte> receive = {};
  int root = -1;
  Waiting waiting = Waiting::kSpin;
};

/// Moves data between the ranks; knows nothing of gradients, modes or timing (see Exchange).
/// One implementation a library. All calls are collective. Data lies in host memory and the calls
/// block until this rank's result is there; or it lies on a device, whose stream has the result
/// when it comes by. Counts come from the spans, never from the caller.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Sum over ranks, in place, bit-equal on all ranks.
  virtual void all_reduce_sum(std::span<float> data, Waiting waiting) = 0;
  /// The mean over ranks, in place, bit-equal on all ranks.
  virtual void all_reduce_mean(std::span<float> data, Waiting waiting) = 0;
  /// The sum in bfloat16 or IEEE half, stored as their 16 bits, each addition rounded to nearest.
  virtual void all_reduce_sum_bf16(std::span<std::uint16_t> data, Waiting waiting) = 0;
  virtual void all_reduce_sum_fp16(std::span<std::uint16_t> data, Waiting waiting) = 0;
  /// The mean over ranks, in place, bit-equal on all ranks: travels in 16 bits, is added in
  /// float32. Returns the seconds spent on turning values into what travels and back; nothing, on
  /// all ranks, where the caller has to turn them.
  virtual std::optional<double> all_reduce_mean_through(std::span<float> /*data*/,
                                                        HalfType /*type*/, Waiting /*waiting*/) {
    return {};
  }
  /// Sum on `root`; the other ranks' data is left as it was.
  virtual void reduce_sum(std::span<float> data, int root) = 0;
  virtual void broadcast(std::span<std::byte> data, int root) = 0;
  /// `all` is used on root only and holds size() × one.size() values in order of rank.
  virtual void gather(std::span<const float> one, std::span<float> all, int root) = 0;
  virtual void scatter(std::span<const float> all, std::span<float> one, int root) = 0;

  /// Whether `move` has it. The same on all ranks.
  virtual bool moves(CollectiveKind /*kind*/, ValueType /*type*/) const { return false; }
  /// For calls that `moves` has.
  virtual void move(const TypedCall& /*call*/) {}

  /// Memory of `bytes`, for as long as the pointer is held, in which this transport's all-reduce
  /// needs no copy; null where any memory is as good. Collective; null on all ranks of a node or on
  /// none.
  virtual std::shared_ptr<std::byte> allocate(std::size_t /*bytes*/) { return {}; }

  /// Null where all-reduces cannot be posted.
  virtual PostedMeans* posted_means() { return nullptr; }

  /// Null where calls block.
  virtual DeviceQueue* device_queue() { return nullptr; }
  bool enqueues() { return device_queue() != nullptr; }
};

}  // namespace gradsync
