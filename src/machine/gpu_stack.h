#pragma once

#include <string>
#include <vector>

#include "machine/choice.h"

namespace gradsync {

/// The GPU software of this build and machine: the seam that the NCCL transport builds on. Every
/// build compiles and links it; it needs no driver.
struct GpuStack {
  std::string nccl_compiled, nccl_loaded;  ///< "2.28.9", or "none" in a build without CUDA
  std::string cuda_compiled, cuda_loaded;  ///< of the run-time library
  std::string driver;                      ///< highest CUDA version the driver supports, or "none"
  int devices = 0;
};

GpuStack gpu_stack();

/// The GPUs that CUDA_VISIBLE_DEVICES leaves, in CUDA's order; none without a driver or in a build
/// without CUDA. Makes no context on any of them.
std::vector<GpuDevice> visible_gpus();

}  // namespace gradsync
