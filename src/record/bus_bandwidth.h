#pragma once

#include "record/run.h"

/// Bandwidths of one collective as nccl-tests defines them: pure formulas of bytes, seconds and
/// ranks, for the calibration and for the report alike. A result is NaN where an input is NaN, a
/// time is not positive or nothing crosses a link (one rank). Nothing is clipped.
namespace gradsync {

inline constexpr double kGB = 1e9;
inline constexpr double kMiB = 1024.0 * 1024.0;
inline constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

/// The S of nccl-tests for a payload of one rank: n payloads for gather, scatter and all-gather
/// (the total over the ranks), one for all-reduce, broadcast and reduce.
double message_bytes(CollectiveKind kind, double payload_bytes, double ranks);

/// algbw = S/t.
double algbw(double bytes, double time_s);

/// busbw / algbw (nccl-tests, doc/PERFORMANCE.md): 2(n − 1)/n for all-reduce, (n − 1)/n for
/// gather, scatter and all-gather, 1 for broadcast and reduce. NaN for one rank and for a barrier.
double busbw_factor(CollectiveKind kind, double ranks);

/// algbw(S, t) · busbw_factor, with S = message_bytes(payload).
double busbw(CollectiveKind kind, double payload_bytes, double ranks, double time_s);

}  // namespace gradsync
