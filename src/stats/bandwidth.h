// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "stats/statistics.h"

/// Collectives: their kinds, their bandwidths as nccl-tests defines them, and their time against
/// size. Pure formulas of bytes, seconds and ranks, for the calibration and for the report alike. A
/// result is NaN where an input is NaN, a time is not positive or nothing crosses a link (one
/// rank). Nothing is clipped.
namespace gradsync {

inline constexpr double kGB = 1e9;
inline constexpr double kMiB = 1024.0 * 1024.0;
inline constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

/// The kinds of collective a bucket can be, `/bucket/kind[iteration, bucket]`.
enum class CollectiveKind : std::uint8_t {
  kAllReduce,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kAllGather,
  kBarrier,
  kReduceScatter,
  kAllToAll,
  kSendReceive
};
inline constexpr std::array<std::string_view, 10> kCollectiveNames = {
    "allreduce", "broadcast", "reduce",         "gather",   "scatter",
    "allgather", "barrier",   "reduce-scatter", "alltoall", "sendrecv"};

std::string_view collective_name(CollectiveKind kind);
/// Nothing if `name` is none of kCollectiveNames.
std::optional<CollectiveKind> parse_collective(std::string_view name);

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

/// Bytes through the link of `rank`, the larger of the two ways of link_bytes:
/// all-reduce 2(n−1)/n·S; rooted kinds (n−1)·S on the root, S elsewhere. 0 for one rank.
std::int64_t traffic_bytes(CollectiveKind kind, std::int64_t bytes, int rank, int ranks, int root);

/// Time against size of a collective, as calibration measured it: R. W. Hockney, "The communication
/// challenge for MPP" (1994). Sizes in bytes, times in seconds, one pair a size, in any order.
/// A pair counts where both are finite, the size is not negative and the time is positive.

/// t(s) = α + β·s.
struct AlphaBeta {
  double alpha_s = Statistics::kNone;
  double beta_s_per_byte = Statistics::kNone;
  std::size_t count = 0;          ///< pairs that it rests on; with 2 it fits exactly
  std::vector<double> residuals;  ///< (α + β·s − t)/t of each pair given; NaN where left out
  double residual_rms = Statistics::kNone;      ///< √(Σ residual² / count)
  double residual_largest = Statistics::kNone;  ///< largest |residual|

  double time_s(double bytes) const { return alpha_s + beta_s_per_byte * bytes; }
};

/// Least squares on the relative residuals, so that the small sizes, which show α, weigh as much as
/// the large ones, which show β: minimizes Σ ((α + β·s − t)/t)². NaN with fewer than two sizes.
/// α or β may come out negative where the times are not of this form; nothing is clipped.
/// Throws Error kInternal unless there are as many times as sizes.
AlphaBeta fit_alpha_beta(std::span<const double> bytes, std::span<const double> times_s);

/// The bandwidth of large messages: the median of the bandwidths at the three largest sizes (of all
/// where there are fewer). NaN without any. `bandwidths` may be algbw or busbw.
double plateau(std::span<const double> bytes, std::span<const double> bandwidths);

/// Hockney's n½ as measured: the smallest size at which the bandwidth reaches half of the plateau,
/// interpolated between the sizes measured (log size against bandwidth). NaN where the smallest
/// size already is above it, since n½ then lies below what was measured.
double half_bandwidth_bytes(std::span<const double> bytes, std::span<const double> bandwidths);

}  // namespace gradsync
