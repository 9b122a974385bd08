#pragma once

#include <string>
#include <vector>

namespace gradsync {

/// A GPU as a process sees it.
struct GpuDevice {
  std::string name;  ///< "NVIDIA H200"
  std::string uuid;  ///< "GPU-0123…", the same in every process that sees the device
};

/// What one rank finds where it runs.
struct DeviceFacts {
  int rank = 0;
  int local_rank = 0;  ///< among the ranks of its host
  std::string host;
  std::string driver;   ///< highest CUDA version the driver supports ("12.4"), or "none"
  std::string runtime;  ///< the CUDA version this build needs ("13.0"), or "none" without CUDA
  std::vector<GpuDevice> gpus;  ///< those that CUDA_VISIBLE_DEVICES leaves, in CUDA's order
};

/// --device and --allow-shared-gpu.
struct DeviceRequest {
  std::string device = "auto";  ///< auto | cpu | cuda
  bool allow_shared_gpu = false;
};

/// On what all ranks compute.
struct DeviceChoice {
  bool cuda = false;
  bool shared = false;  ///< several ranks on one GPU
  std::string why;      ///< why `auto` took the CPU; empty otherwise
};

/// The GPU of a rank: the only visible one, else the one of its local rank; -1 if there is none.
/// Where ranks may share GPUs, those that are left are dealt out in turn.
int gpu_index(int local_rank, std::size_t visible, bool may_share);

/// The same for all ranks, from the facts of all of them. `auto` takes the CPU where no rank sees a
/// GPU. Throws Error kEnvironment, with rank, host, UUID and the fix, for `cuda` without a GPU for
/// every rank, a driver older than the build's CUDA, ranks of which only some have GPUs, and two
/// ranks on one GPU that was not allowed.
DeviceChoice choose_device(const DeviceRequest& request, const std::vector<DeviceFacts>& ranks);

}  // namespace gradsync
