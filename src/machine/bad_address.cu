#include "machine/bad_address.h"
#include "machine/finite.h"
#include "machine/launch.h"
#include "machine/vectors.h"

namespace gradsync {

namespace {

constexpr int kThreads = 256;

__device__ void report(const float* value, unsigned long long* lowest) {
  atomicMin(lowest, static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(value)));
}

/// A thread's indices rise, so its first bad value is its lowest.
__global__ void __launch_bounds__(kThreads)
    lowest_bad(const float* values, std::int64_t fours, std::int64_t count,
               unsigned long long* lowest) {
  const std::int64_t thread = blockIdx.x * std::int64_t{kThreads} + threadIdx.x;
  const std::int64_t threads = gridDim.x * std::int64_t{kThreads};
#pragma unroll 4
  for (std::int64_t i = thread; i < fours; i += threads) {
    const float4 four = as_float4(values + 4 * i);
    if (!(is_bad(four.x) || is_bad(four.y) || is_bad(four.z) || is_bad(four.w))) continue;
    const float* value = values + 4 * i;
    while (!is_bad(*value))
      ++value;
    report(value, lowest);
    return;
  }
  for (std::int64_t i = 4 * fours + thread; i < count; i += threads)
    if (is_bad(values[i])) {
      report(values + i, lowest);
      return;
    }
}

}  // namespace

void launch_lowest_bad(const float* values, std::int64_t count, unsigned long long* lowest,
                       StreamHandle stream) {
  if (count == 0) return;
  const std::int64_t fours = is_aligned(values) ? count / 4 : 0;
  lowest_bad<<<blocks_for(fours > 0 ? fours : count, kThreads), kThreads, 0,
               static_cast<cudaStream_t>(stream)>>>(values, fours, count, lowest);
  require_launched("lowest_bad");
}

}  // namespace gradsync
