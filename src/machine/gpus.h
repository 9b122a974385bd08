// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "stats/statistics.h"

namespace gradsync {

/// A GPU as a process sees it.
struct GpuDevice {
  std::string name;  ///< "NVIDIA H200"
  std::string uuid;  ///< "GPU-0123…", the same in every process that sees the device
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuDevice, name, uuid)

/// What one rank finds where it runs.
struct DeviceFacts {
  int rank = 0;
  int local_rank = 0;  ///< among the ranks of its host
  std::string host;
  std::string driver;   ///< highest CUDA version the driver supports ("12.4"), or "none"
  std::string runtime;  ///< the CUDA version this build needs ("13.0"), or "none" without CUDA
  std::vector<GpuDevice> gpus;  ///< those that CUDA_VISIBLE_DEVICES leaves, in CUDA's order
  std::string error;            ///< GpuStack::error
  std::vector<std::string> unseen = {};  ///< unseen_gpus of the other ranks of its host
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DeviceFacts, rank, local_rank, host, driver, runtime, gpus,
                                   error, unseen)

/// "rank 3 (n2)".
std::string name_of(const DeviceFacts& rank);

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
  /// Several ranks of a host on instances of GPUs (MIG). NCCL takes two of one GPU for a duplicate.
  bool instances = false;
  std::string apart = {};  ///< unreachable_gpu() of the ranks
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DeviceChoice, cuda, shared, why, instances, apart)

/// The GPU of a rank: the only visible one, else the one of its local rank; -1 if there is none.
/// Where ranks may share GPUs, those that are left are dealt out in turn.
int gpu_index(int local_rank, std::size_t visible, bool may_share);

/// What keeps a rank from driving a GPU, and what helps; empty texts if nothing does.
struct GpuLack {
  std::string what, fix;
};
GpuLack gpu_lack(const DeviceFacts& rank, bool may_share);

/// The first rank from which a GPU of its host is hidden, in words: NCCL takes it for one within
/// reach, and fails in the first collective (NCCL 2.28, p2pCanConnect). Empty: there is none.
std::string unreachable_gpu(const std::vector<DeviceFacts>& ranks);
inline constexpr const char* kUnreachableFix =
    "srun --gpus-per-node=RANKS-PER-NODE --gpu-bind=none, not --gpus-per-task nor another "
    "--gpu-bind; --transport mpi does without NCCL";

/// Whether no rank sees a GPU and no driver has failed: `auto` takes the CPU.
bool is_without_gpus(const std::vector<DeviceFacts>& ranks);

/// The choice for all ranks, from the facts of all of them. Throws Error kEnvironment, with rank,
/// host, UUID and the fix, for `cuda` without a GPU for every rank, a driver that fails or is older
/// than the build's CUDA, ranks of which only some have GPUs, and two ranks on one GPU that was not
/// allowed.
DeviceChoice choose_device(const DeviceRequest& request, const std::vector<DeviceFacts>& ranks);

/// The GPU software of this build and machine: the seam that the NCCL transport builds on. Every
/// build compiles and links it; it needs no driver.
struct GpuStack {
  std::string nccl_compiled, nccl_loaded;  ///< "2.28.9", or "none" in a build without CUDA
  std::string cuda_compiled, cuda_loaded;  ///< of the run-time library
  std::string driver;                      ///< highest CUDA version the driver supports, or "none"
  int devices = 0;
  /// What the driver answered instead of a number of GPUs, as "802: system not yet initialized";
  /// empty where it has counted them, and where there is no GPU or no driver.
  std::string error = {};
};

GpuStack gpu_stack();

/// What NCCL's log (NCCL_DEBUG=INFO) says that it chose: "network IB; P2P/CUMEM, NET/IB/GDRDMA;
/// NVLink between GPUs; 16 channels, 0 of NVLS; RING, SIMPLE for 67108864 B". Parts that it does
/// not say are left out.
std::string nccl_choices(std::string_view log);

/// What NCCL chose for its collectives of one kind, type and size.
struct NcclChoice {
  std::string collective;  ///< "AllReduce"; this and what follows as NCCL names it
  std::string type;        ///< "ncclFloat32"
  std::int64_t bytes = 0;  ///< payload of one rank; -1: a type whose size is not known
  std::string algorithm;   ///< "RING", "NVLS"
  std::string protocol;    ///< "SIMPLE", "LL128"
  std::int64_t channels = 0;

  auto operator<=>(const NcclChoice&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// Has NCCL (2.27 and later) tell this process what it chooses, unless NCCL_PROFILER_PLUGIN names
/// another plugin or none. To be called before any other thread is there.
void keep_nccl_choices();
/// What it has chosen so far, each once. Any thread.
std::vector<NcclChoice> kept_nccl_choices();

/// The GPUs that CUDA_VISIBLE_DEVICES leaves, in CUDA's order; none without a driver or in a build
/// without CUDA. Makes no context on any of them.
std::vector<GpuDevice> visible_gpus();

/// What the driver says of a GPU at one moment; NaN (−1 for the reasons) where it says nothing.
struct GpuReading {
  double at_s = kNotMeasured;  ///< steady clock of this rank
  double memory_used_bytes = kNotMeasured, memory_bytes = kNotMeasured;  ///< used, and all there is
  /// Parts of the time since the driver's last look, up to a second ago, in which a kernel ran and
  /// in which memory was read or written: 0 to 1.
  double busy = kNotMeasured, memory_busy = kNotMeasured;
  double energy_j = kNotMeasured;  ///< since the driver was loaded
  double sm_clock_hz = kNotMeasured, memory_clock_hz = kNotMeasured;
  double power_w = kNotMeasured, temperature_c = kNotMeasured;
  /// Why the clocks are not higher: bits of NVML's clocks event reasons.
  std::int64_t throttle_reasons = -1;
};

/// How a GPU is connected; −1 where the driver says nothing.
struct GpuLinks {
  int pcie_generation = -1, pcie_lanes = -1;  ///< at most, of GPU and slot
  int nvlinks = -1, all_nvlinks = -1;         ///< that are up; that the GPU has
  double nvlink_Bps = kNotMeasured;           ///< nominal rate of each that is up, one way
};

/// "PCIe 5 x16, 18 NVLinks of 26.6 GB/s"; empty where the driver says nothing.
std::string links_text(const GpuLinks& links);

/// What two GPUs of a host have in common, as `nvidia-smi topo -m` abbreviates it: "PIX" (one PCIe
/// switch), "PXB" (several), "PHB" (a host bridge), "NODE" (a NUMA node), "SYS" (nothing of these),
/// "X" (they are one); empty where the driver says nothing.
std::string common_ancestor_name(int level);

/// The bits of `throttle_reasons` that cost speed, named: "power cap, thermal slowdown"; empty if
/// none is set or nothing was measured.
std::string throttle_names(std::int64_t reasons);

/// Asks the driver's library about one GPU, without CUDA and without touching the GPU's streams.
class GpuMonitor {
 public:
  virtual ~GpuMonitor() = default;
  virtual GpuReading read() = 0;
  virtual GpuLinks links() { return {}; }
  /// Memory errors that were not corrected since the driver was loaded; −1 where it says nothing.
  virtual std::int64_t uncorrected_errors() { return -1; }
  /// Whether the driver shows this process the GPU, be it left by CUDA_VISIBLE_DEVICES or not.
  virtual bool shows(const std::string& /*uuid*/) { return true; }
  /// common_ancestor_name of this GPU and another one of this host. NVLink is not in it.
  virtual std::string path_to(const std::string& /*uuid*/) { return {}; }
};

/// Loads NVML (the driver brings it). `uuid` as CUDA gives it: "GPU-…". Nothing, with `why` filled
/// in, where the library or the GPU is not there: then a run has no such samples, which is no
/// error.
std::unique_ptr<GpuMonitor> open_nvml(const std::string& uuid, std::string& why,
                                      const std::string& library = "libnvidia-ml.so.1");

/// GPUs among `others` that the driver hides from this process, which drives `own`: they are
/// outside of its control group or container. None where the driver's library is not there.
std::vector<std::string> unseen_gpus(const std::string& own, const std::vector<std::string>& others,
                                     const std::string& library = "libnvidia-ml.so.1");

}  // namespace gradsync
