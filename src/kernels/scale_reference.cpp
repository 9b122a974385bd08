#include "kernels/scale.h"

#if !GRADSYNC_WITH_CUDA
#include "support/error.h"
#endif

namespace gradsync {

void scale_on_host(std::span<float> values, float factor) {
  for (float& value : values)
    value *= factor;
}

#if !GRADSYNC_WITH_CUDA

void launch_scale(float*, std::int64_t, float, StreamHandle) {
  throw Error(ExitCode::kEnvironment, "this gradsync was built with a LibTorch without CUDA",
              "--device cpu, or build with a LibTorch for CUDA (make status)");
}

#endif

}  // namespace gradsync
