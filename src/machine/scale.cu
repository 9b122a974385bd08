#include "machine/launch.h"
#include "machine/scale.h"
#include "machine/vectors.h"

namespace gradsync {

namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) scale(float* values, std::int64_t count, float factor) {
  const std::int64_t threads = gridDim.x * std::int64_t{kThreads};
  for (std::int64_t i = blockIdx.x * std::int64_t{kThreads} + threadIdx.x; i < count; i += threads)
    values[i] *= factor;
}

}  // namespace

void launch_scale(float* values, std::int64_t count, float factor, StreamHandle stream) {
  if (count == 0) return;
  scale<<<blocks_for(count, kThreads), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      values, count, factor);
  require_launched("scale");
}

}  // namespace gradsync
