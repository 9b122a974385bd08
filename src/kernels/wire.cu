#include "kernels/kernels.h"
#include "kernels/launch.h"
#include "kernels/vectors.h"

namespace gradsync {

namespace {

constexpr int kThreads = 256;
constexpr int kAtOnce = 8;  ///< values in 16 bytes of the wire

/// 16 bytes of the wire.
struct alignas(kVectorBytes) Eight {
  std::uint16_t half[kAtOnce];
};

template <HalfType kType>
__device__ void pack_eight(const float* values, std::uint16_t* wire, float factor) {
  const float4 low = as_float4(values), high = as_float4(values + 4);
  const float all[kAtOnce] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  Eight out;
#pragma unroll
  for (int k = 0; k < kAtOnce; ++k)
    out.half[k] = to_half(all[k] * factor, kType);
  *reinterpret_cast<Eight*>(wire) = out;
}

template <HalfType kType>
__device__ void unpack_eight(const std::uint16_t* wire, float* values, float factor) {
  const Eight in = *reinterpret_cast<const Eight*>(wire);
  float all[kAtOnce];
#pragma unroll
  for (int k = 0; k < kAtOnce; ++k)
    all[k] = from_half(in.half[k], kType) * factor;
  as_float4(values) = make_float4(all[0], all[1], all[2], all[3]);
  as_float4(values + 4) = make_float4(all[4], all[5], all[6], all[7]);
}

/// `eights` groups of eight aligned values, then one by one up to `count`.
template <HalfType kType>
__global__ void __launch_bounds__(kThreads)
    pack(const float* values, std::uint16_t* wire, std::int64_t eights, std::int64_t count,
         float factor) {
  const std::int64_t thread = blockIdx.x * std::int64_t{kThreads} + threadIdx.x;
  const std::int64_t threads = gridDim.x * std::int64_t{kThreads};
  for (std::int64_t i = thread; i < eights; i += threads)
    pack_eight<kType>(values + kAtOnce * i, wire + kAtOnce * i, factor);
  for (std::int64_t i = kAtOnce * eights + thread; i < count; i += threads)
    wire[i] = to_half(values[i] * factor, kType);
}

template <HalfType kType>
__global__ void __launch_bounds__(kThreads)
    unpack(const std::uint16_t* wire, float* values, std::int64_t eights, std::int64_t count,
           float factor) {
  const std::int64_t thread = blockIdx.x * std::int64_t{kThreads} + threadIdx.x;
  const std::int64_t threads = gridDim.x * std::int64_t{kThreads};
  for (std::int64_t i = thread; i < eights; i += threads)
    unpack_eight<kType>(wire + kAtOnce * i, values + kAtOnce * i, factor);
  for (std::int64_t i = kAtOnce * eights + thread; i < count; i += threads)
    values[i] = from_half(wire[i], kType) * factor;
}

/// A bucket may begin at any value of the flat buffer.
std::int64_t eights_of(const void* values, const void* wire, std::int64_t count) {
  return is_aligned(values) && is_aligned(wire) ? count / kAtOnce : 0;
}

}  // namespace

void launch_pack(const float* values, std::uint16_t* wire, std::int64_t count, float factor,
                 HalfType type, StreamHandle stream) {
  if (count == 0) return;
  const std::int64_t eights = eights_of(values, wire, count);
  const auto kernel =
      type == HalfType::kBfloat16 ? pack<HalfType::kBfloat16> : pack<HalfType::kFloat16>;
  kernel<<<blocks_for(eights > 0 ? eights : count, kThreads), kThreads, 0,
           static_cast<cudaStream_t>(stream)>>>(values, wire, eights, count, factor);
  require_launched("pack");
}

void launch_unpack(const std::uint16_t* wire, float* values, std::int64_t count, float factor,
                   HalfType type, StreamHandle stream) {
  if (count == 0) return;
  const std::int64_t eights = eights_of(values, wire, count);
  const auto kernel =
      type == HalfType::kBfloat16 ? unpack<HalfType::kBfloat16> : unpack<HalfType::kFloat16>;
  kernel<<<blocks_for(eights > 0 ? eights : count, kThreads), kThreads, 0,
           static_cast<cudaStream_t>(stream)>>>(wire, values, eights, count, factor);
  require_launched("unpack");
}

}  // namespace gradsync
