#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

namespace gradsync {

/// What the driver says of a GPU at one moment; NaN (−1 for the reasons) where it says nothing.
struct GpuReading {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  double at_s = kUnknown;                                        ///< steady clock of this rank
  double memory_used_bytes = kUnknown, memory_bytes = kUnknown;  ///< used, and all there is
  /// Parts of the time since the driver's last look, up to a second ago, in which a kernel ran and
  /// in which memory was read or written: 0 to 1.
  double busy = kUnknown, memory_busy = kUnknown;
  double energy_j = kUnknown;  ///< since the driver was loaded
  double sm_clock_hz = kUnknown, memory_clock_hz = kUnknown;
  double power_w = kUnknown, temperature_c = kUnknown;
  /// Why the clocks are not higher: bits of NVML's clocks event reasons.
  std::int64_t throttle_reasons = -1;
};

/// How a GPU is connected; −1 where the driver says nothing.
struct GpuLinks {
  int pcie_generation = -1, pcie_lanes = -1;  ///< at most, of GPU and slot
  int nvlinks = -1, all_nvlinks = -1;         ///< that are up; that the GPU has
  double nvlink_Bps = GpuReading::kUnknown;   ///< nominal rate of each that is up, one way
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
  /// common_ancestor_name of this GPU and another one of this host. NVLink is not in it.
  virtual std::string path_to(const std::string& /*uuid*/) { return {}; }
};

/// Loads NVML (the driver brings it). `uuid` as CUDA gives it: "GPU-…". Nothing, with `why` filled
/// in, where the library or the GPU is not there: then a run has no such samples, which is no
/// error.
std::unique_ptr<GpuMonitor> open_nvml(const std::string& uuid, std::string& why,
                                      const std::string& library = "libnvidia-ml.so.1");

}  // namespace gradsync
