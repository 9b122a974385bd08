// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/numbers.h"
#include "stats/bandwidth.h"
#include "stats/interval_set.h"

namespace gradsync {

class SharedAllReduce;

/// How the calling thread waits for a collective.
enum class Waiting {
  kSpin,   ///< as MPI does: lowest latency, takes a core
  kSleep,  ///< polls with short sleeps: for a thread beside compute that needs every core
};

/// What a collective leaves of the sum over ranks: all of it, or its n-th part for n ranks.
enum class Scale { kSum, kAverage };

/// One collective of all ranks of a transport. Counts come from the buffers, never from the caller.
struct Collective {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  ValueType type = ValueType::kFloat32;
  /// All-reduce, reduce and broadcast are in place: `send` is not used. Gather, scatter,
  /// all-gather, reduce-scatter and all-to-all: the one holds the values of one rank and the other
  /// those of all ranks in their order, or both do; for gather and scatter the latter is used on
  /// the root only. Send/receive: to the next rank, from the one before.
  std::span<const std::byte> send = {};
  std::span<std::byte> receive = {};
  Scale scale = Scale::kSum;  ///< a mean is of float32, by all-reduce or reduce-scatter
  /// What float32 values travel as in an all-reduce: a type of 16 bits halves the bytes. Each rank
  /// adds in float32.
  ValueType wire = ValueType::kFloat32;
  int root = -1;  ///< −1: none
  Waiting waiting = Waiting::kSpin;

  bool narrows() const { return type == ValueType::kFloat32 && wire != ValueType::kFloat32; }

  static Collective all_reduce(std::span<float> data, Scale scale,
                               Waiting waiting = Waiting::kSpin) {
    return {.receive = std::as_writable_bytes(data), .scale = scale, .waiting = waiting};
  }
  /// The sum on `root`; the other ranks' data is left as it was.
  static Collective reduce(std::span<float> data, int root) {
    return {.kind = CollectiveKind::kReduce, .receive = std::as_writable_bytes(data), .root = root};
  }
  static Collective broadcast(std::span<float> data, int root) {
    return {
        .kind = CollectiveKind::kBroadcast, .receive = std::as_writable_bytes(data), .root = root};
  }
  static Collective broadcast(std::span<std::byte> data, int root) {
    return {.kind = CollectiveKind::kBroadcast,
            .type = ValueType::kByte,
            .receive = data,
            .root = root};
  }
  static Collective gather(std::span<const float> one, std::span<float> all, int root) {
    return {.kind = CollectiveKind::kGather,
            .send = std::as_bytes(one),
            .receive = std::as_writable_bytes(all),
            .root = root};
  }
  /// `all` holds the parts of all ranks in their order, and may hold this one already.
  static Collective all_gather(std::span<const std::byte> one, std::span<std::byte> all) {
    return {
        .kind = CollectiveKind::kAllGather, .type = ValueType::kByte, .send = one, .receive = all};
  }
  /// `one` is the sum, or mean, of what all ranks have for this one in `all`. It may be this rank's
  /// part of `all`, whose other parts are overwritten then.
  static Collective reduce_scatter(std::span<const float> all, std::span<float> one,
                                   Scale scale = Scale::kSum) {
    return {.kind = CollectiveKind::kReduceScatter,
            .send = std::as_bytes(all),
            .receive = std::as_writable_bytes(one),
            .scale = scale};
  }
  static Collective scatter(std::span<const float> all, std::span<float> one, int root) {
    return {.kind = CollectiveKind::kScatter,
            .send = std::as_bytes(all),
            .receive = std::as_writable_bytes(one),
            .root = root};
  }
};

/// The values of all ranks, in the memory of the caller, of a reduce-scatter or an all-gather that
/// has those of one at their place among them; empty where it has not.
std::span<std::byte> in_place(const Collective& call, int rank);
/// These values as floats: what a reduce-scatter of float32 sums, or an all-gather of whole floats
/// puts together. Empty for all else.
std::span<float> floats_in_place(const Collective& call, int rank, int ranks);

/// When what was posted moved data, on this host's steady clock. Before all ranks have begun
/// their parts, and outside of its own, a rank has nothing to move.
struct PostedTimes {
  Interval own;   ///< this rank's part
  Interval last;  ///< from when the last rank began its part to when all had done theirs
};

/// Moves data between the ranks; knows nothing of gradients, modes or timing (see Exchange).
/// One implementation a library. All calls are collective. Data lies in host memory and the calls
/// block until this rank's result is there; or it lies on a device, whose stream has the result
/// when it comes by.
class Transport {
 public:
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  std::string_view name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Whether calls only enqueue what a device will do, and return at once.
  bool enqueues() const { return enqueues_; }

  /// Whether `run` has collectives of this kind, type and wire; buffers do not matter. The same on
  /// all ranks. Every transport has all of them but a barrier and those with a narrower wire.
  virtual bool supports(const Collective& call) const {
    return call.kind != CollectiveKind::kBarrier && !call.narrows();
  }
  /// For collectives that it supports; results of an all-reduce are bit-equal on all ranks. Sums of
  /// 16-bit types round each addition to nearest. Returns the seconds spent on turning values into
  /// what travels and back.
  virtual double run(const Collective& call) = 0;

  /// Memory of `bytes`, for as long as the pointer is held, in which this transport's all-reduce
  /// needs no copy; null where any memory is as good. Collective; null on all ranks of a node or on
  /// none.
  virtual std::shared_ptr<std::byte> allocate(std::size_t /*bytes*/) { return {}; }

  /// Where all-reduces, and halves of them in place, of what `allocate` gave can be posted, to
  /// advance whenever a rank looks at them; null where they cannot.
  virtual SharedAllReduce* posted() { return nullptr; }

  /// Why what was enqueued can never end (a rank is gone); empty while all is well.
  virtual std::string lost() { return {}; }
  /// Ends what is enqueued without the other ranks, before the job is aborted. From any thread.
  virtual void abandon() noexcept {}
  /// Whether that was called: what was enqueued ends then, with results that were never computed.
  bool abandoned() const { return abandoned_; }

 protected:
  /// `name` is a literal.
  Transport(std::string_view name, int rank, int size, bool enqueues = false)
      : name_(name), rank_(rank), size_(size), enqueues_(enqueues) {}

  std::atomic<bool> abandoned_{false};  ///< set before anything ends

 private:
  std::string_view name_;
  int rank_, size_;
  bool enqueues_;
};

/// 16-bit values as their bits; not integers, and not each other.
struct Bfloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

/// To the type in which values of this type are added: double for double, else float.
inline float widen(float value) {
  return value;
}
inline double widen(double value) {
  return value;
}
inline float widen(Bfloat16 value) {
  return from_bf16(value.bits);
}
inline float widen(Float16 value) {
  return from_fp16(value.bits);
}

/// Back, rounding to nearest even.
inline void narrow(float value, float& to) {
  to = value;
}
inline void narrow(double value, double& to) {
  to = value;
}
inline void narrow(float value, Bfloat16& to) {
  to.bits = to_bf16(value);
}
inline void narrow(float value, Float16& to) {
  to.bits = to_fp16(value);
}

/// What values of a type are added in.
template <typename T>
using SumOf = decltype(widen(T()));

/// The all-reduces that the transports of host memory have of their own; the rest goes by MPI.
inline bool has_own_all_reduce(CollectiveKind kind, ValueType type) {
  return kind == CollectiveKind::kAllReduce &&
         (type == ValueType::kFloat32 || type == ValueType::kBfloat16 ||
          type == ValueType::kFloat16);
}

/// Calls `body` with the bytes as a span of values of their type; single bytes as int8.
template <typename Byte, typename Body>
decltype(auto) with_values(std::span<Byte> data, ValueType type, const Body& body) {
  const auto as = [&]<typename T>(T /*tag*/) -> decltype(auto) {
    using Value = std::conditional_t<std::is_const_v<Byte>, const T, T>;
    return body(std::span<Value>(reinterpret_cast<Value*>(data.data()), data.size() / sizeof(T)));
  };
  switch (type) {
    case ValueType::kBfloat16:
      return as(Bfloat16{});
    case ValueType::kFloat16:
      return as(Float16{});
    case ValueType::kFloat64:
      return as(double{});
    case ValueType::kInt32:
      return as(std::int32_t{});
    case ValueType::kInt8:
    case ValueType::kByte:
      return as(std::int8_t{});
    case ValueType::kFloat32:
      break;
  }
  return as(float{});
}

}  // namespace gradsync
