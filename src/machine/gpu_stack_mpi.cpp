#include "machine/gpu_stack.h"

#if GRADSYNC_WITH_CUDA
#include <cuda_runtime_api.h>
#include <nccl.h>
#endif

#include <fmt/format.h>

namespace gradsync {

#if GRADSYNC_WITH_CUDA

namespace {

std::string nccl_version(int code) {
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

std::string cuda_version(int code) {
  return code == 0 ? "none" : fmt::format("{}.{}", code / 1000, code / 10 % 100);
}

/// As nvidia-smi writes it.
std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

}  // namespace

GpuStack gpu_stack() {
  int nccl = 0, runtime = 0, driver = 0, devices = 0;
  if (ncclGetVersion(&nccl) != ncclSuccess) nccl = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) devices = 0;
  return {nccl_version(NCCL_VERSION_CODE), nccl_version(nccl),   cuda_version(CUDART_VERSION),
          cuda_version(runtime),           cuda_version(driver), devices};
}

std::vector<GpuDevice> visible_gpus() {
  std::vector<GpuDevice> all;
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) devices = 0;
  for (int device = 0; device < devices; ++device) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) continue;
    all.push_back({properties.name, uuid_text(properties.uuid)});
  }
  return all;
}

#else

GpuStack gpu_stack() {
  return {"none", "none", "none", "none", "none", 0};
}

std::vector<GpuDevice> visible_gpus() {
  return {};
}

#endif

}  // namespace gradsync
