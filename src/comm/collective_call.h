// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

#include "base/numbers.h"
#include "stats/bandwidth.h"

namespace gradsync {

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

/// The type of --wire-dtype fp32, bf16 or fp16.
ValueType wire_type(const std::string& name);

}  // namespace gradsync
