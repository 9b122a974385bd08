#pragma once

#include <cstdint>
#include <string>

#include "record/run.h"

namespace gradsync {

enum class ValueType : std::uint8_t {
  kFloat32,
  kBfloat16,
  kFloat16,
  kByte,
  kFloat64,
  kInt8,
  kInt32
};
enum class ReduceOp : std::uint8_t { kNone, kSum };

/// What one rank is about to do: its fingerprint. Ranks that meet in a collective must agree on all
/// of it, or the sums are wrong, the heap is, or the job hangs.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kBarrier;
  ValueType type = ValueType::kFloat32;
  ReduceOp op = ReduceOp::kNone;
  std::uint8_t mode = 0;  ///< index of the synchronization mode
  std::int32_t root = -1;
  std::int64_t count = 0;
  std::int64_t iteration = 0;

  bool operator==(const CollectiveCall&) const = default;
};

/// "allreduce of 65536 float32, sum, iteration 12, mode ddp".
std::string to_string(const CollectiveCall& call, const std::string& mode_name);

/// 64 bits that differ for calls that differ (splitmix64 over the fields).
std::uint64_t fingerprint(const CollectiveCall& call);

std::int64_t value_bytes(ValueType type);

/// The type of --wire-dtype fp32, bf16 or fp16.
ValueType wire_type(const std::string& name);

/// Bytes through the link of `rank`, the larger of the two directions of link_bytes():
/// all-reduce 2(n−1)/n·S; rooted kinds (n−1)·S on the root, S elsewhere. 0 for one rank.
std::int64_t traffic_bytes(CollectiveKind kind, std::int64_t bytes, int rank, int ranks, int root);

/// Bandwidths of one collective as nccl-tests defines them: pure formulas of bytes, seconds and
/// ranks, for the calibration and for the report alike. A result is NaN where an input is NaN, a
/// time is not positive or nothing crosses a link (one rank). Nothing is clipped.

inline constexpr double kGB = 1e9;
inline constexpr double kMiB = 1024.0 * 1024.0;
inline constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

/// The S of nccl-tests for a payload of one rank: n payloads for gather, scatter, all-gather,
/// reduce-scatter and all-to-all (what a rank holds of all), else one.
double message_bytes(CollectiveKind kind, double payload_bytes, double ranks);

/// algbw = S/t.
double algbw(double bytes, double time_s);

/// busbw / algbw (nccl-tests, doc/PERFORMANCE.md): 2(n − 1)/n for all-reduce, (n − 1)/n for
/// gather, scatter, all-gather, reduce-scatter and all-to-all, 1 for broadcast, reduce and
/// send/receive. NaN for one rank and for a barrier.
double busbw_factor(CollectiveKind kind, double ranks);

/// algbw(S, t) · busbw_factor, with S = message_bytes(payload).
double busbw(CollectiveKind kind, double payload_bytes, double ranks, double time_s);

/// What a collective, or a message, moves over the link of one rank, in bytes.
struct LinkBytes {
  std::int64_t sent = 0, received = 0;
  bool operator==(const LinkBytes&) const = default;
};

/// By the usual algorithm of each kind, for a payload of `bytes` a rank: all-reduce (ring)
/// 2(n−1)/n·S each way; broadcast and scatter: the root sends (n−1)·S, the others receive S; reduce
/// and gather: the other way round; all-gather, reduce-scatter and all-to-all (n−1)·S each way;
/// send/receive S each way; barrier and one rank 0.
LinkBytes link_bytes(CollectiveKind kind, std::int64_t bytes, int rank, int ranks, int root);

/// Counts what a rank sends and receives from its start to its end, by what it is for. Not
/// thread-safe: used by the thread that talks to MPI.
class Ledger {
 public:
  void add(Traffic category, LinkBytes bytes);
  void add(const RankTraffic& moved);
  const RankTraffic& total() const { return total_; }
  /// Forgets what was counted since the total was `before`; returns it.
  RankTraffic take_back(const RankTraffic& before);

 private:
  RankTraffic total_;
};

}  // namespace gradsync
