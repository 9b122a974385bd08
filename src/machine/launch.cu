#include "machine/launch.h"

#if GRADSYNC_WITH_CUDA

#include <string>

#include <cuda_runtime_api.h>

#include "base/error.h"

namespace gradsync {

void require_launched(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return;
  const std::string what = std::string("kernel ") + kernel + ": " + cudaGetErrorString(error);
  if (error == cudaErrorMemoryAllocation)
    throw Error(ExitCode::kOutOfMemory, what, "lower --batch-per-rank");
  const bool other_architecture =
      error == cudaErrorNoKernelImageForDevice || error == cudaErrorUnsupportedPtxVersion;
  throw Error(ExitCode::kEnvironment, what,
              other_architecture ? "make CUDA_ARCHS=\"80 90 …\" with this GPU's architecture" : "");
}

}  // namespace gradsync

#endif
