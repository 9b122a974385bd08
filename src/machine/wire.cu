#include "machine/kernels.h"
#include "machine/launch.h"
#include "machine/vectors.h"

namespace gradsync {

namespace {

constexpr int kThreads = 256;
constexpr int kAtOnce = 8;  ///< values in 16 bytes of the wire

/// 16 bytes of the wire.
struct alignas(kVectorBytes) Eight {
  std::uint16_t half[kAtOnce];
};

/// half = value · factor.
template <HalfType kType>
struct Pack {
  using From = float;
  using To = std::uint16_t;

  static __device__ To one(From value, float factor) { return to_half(value * factor, kType); }

  static __device__ void eight(const From* values, To* wire, float factor) {
    const float4 low = as_float4(values), high = as_float4(values + 4);
    const float all[kAtOnce] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    Eight out;
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      out.half[k] = one(all[k], factor);
    *reinterpret_cast<Eight*>(wire) = out;
  }
};

/// value = half · factor.
template <HalfType kType>
struct Unpack {
  using From = std::uint16_t;
  using To = float;

  static __device__ To one(From half, float factor) { return from_half(half, kType) * factor; }

  static __device__ void eight(const From* wire, To* values, float factor) {
    const Eight in = *reinterpret_cast<const Eight*>(wire);
    float all[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      all[k] = one(in.half[k], factor);
    as_float4(values) = make_float4(all[0], all[1], all[2], all[3]);
    as_float4(values + 4) = make_float4(all[4], all[5], all[6], all[7]);
  }
};

/// `eights` groups of eight aligned values, then one by one up to `count`.
template <typename Conversion>
__global__ void __launch_bounds__(kThreads)
    convert(const typename Conversion::From* from, typename Conversion::To* to, std::int64_t eights,
            std::int64_t count, float factor) {
  const std::int64_t thread = blockIdx.x * std::int64_t{kThreads} + threadIdx.x;
  const std::int64_t threads = gridDim.x * std::int64_t{kThreads};
  for (std::int64_t i = thread; i < eights; i += threads)
    Conversion::eight(from + kAtOnce * i, to + kAtOnce * i, factor);
  for (std::int64_t i = kAtOnce * eights + thread; i < count; i += threads)
    to[i] = Conversion::one(from[i], factor);
}

template <typename Conversion>
void launch(const typename Conversion::From* from, typename Conversion::To* to, std::int64_t count,
            float factor, StreamHandle stream) {
  if (count == 0) return;
  // A bucket may begin at any value of the flat buffer.
  const std::int64_t eights = is_aligned(from) && is_aligned(to) ? count / kAtOnce : 0;
  convert<Conversion><<<blocks_for(eights > 0 ? eights : count, kThreads), kThreads, 0,
                        static_cast<cudaStream_t>(stream)>>>(from, to, eights, count, factor);
  require_launched("wire");
}

}  // namespace

void launch_pack(const float* values, std::uint16_t* wire, std::int64_t count, float factor,
                 HalfType type, StreamHandle stream) {
  if (type == HalfType::kBfloat16)
    launch<Pack<HalfType::kBfloat16>>(values, wire, count, factor, stream);
  else
    launch<Pack<HalfType::kFloat16>>(values, wire, count, factor, stream);
}

void launch_unpack(const std::uint16_t* wire, float* values, std::int64_t count, float factor,
                   HalfType type, StreamHandle stream) {
  if (type == HalfType::kBfloat16)
    launch<Unpack<HalfType::kBfloat16>>(wire, values, count, factor, stream);
  else
    launch<Unpack<HalfType::kFloat16>>(wire, values, count, factor, stream);
}

}  // namespace gradsync
