// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/types.h>
#if GRADSYNC_WITH_CUDA
#include <c10/cuda/CUDAStream.h>
#endif

#include "machine/device.h"

namespace gradsync {

/// The stream that LibTorch's work on this thread goes to; none on the CPU.
inline StreamHandle current_stream([[maybe_unused]] const torch::Device& device) {
#if GRADSYNC_WITH_CUDA
  if (device.is_cuda()) return c10::cuda::getCurrentCUDAStream(device.index()).stream();
#endif
  return nullptr;
}

}  // namespace gradsync
