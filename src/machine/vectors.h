#pragma once

#include <cstdint>

#include "base/host_device.h"

/// Accesses of 16 bytes, for kernels only: fewer instructions a byte, and more bytes on their way.
namespace gradsync {

inline constexpr int kVectorBytes = 16;

GRADSYNC_HOST_DEVICE inline bool is_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % kVectorBytes == 0;
}

/// Requires is_aligned(values).
__device__ inline float4& as_float4(float* values) {
  return *reinterpret_cast<float4*>(values);
}

__device__ inline const float4& as_float4(const float* values) {
  return *reinterpret_cast<const float4*>(values);
}

/// Blocks for `items`, which the threads process in a grid-stride loop: enough to fill any GPU
/// several times over.
inline unsigned blocks_for(std::int64_t items, int threads) {
  constexpr std::int64_t kMost = 4096;
  const std::int64_t blocks = (items + threads - 1) / threads;
  return static_cast<unsigned>(blocks < kMost ? blocks : kMost);
}

}  // namespace gradsync
