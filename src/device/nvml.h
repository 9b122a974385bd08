#pragma once

#include <condition_variable>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace gradsync {

/// What the driver says of a GPU at one moment; NaN (−1 for the reasons) where it says nothing.
struct GpuReading {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  double at_s = kUnknown;  ///< steady clock of this rank
  double memory_used_bytes = kUnknown;
  double sm_clock_hz = kUnknown, memory_clock_hz = kUnknown;
  double power_w = kUnknown, temperature_c = kUnknown;
  /// Why the clocks are not higher: bits of NVML's clocks event reasons.
  std::int64_t throttle_reasons = -1;
};

/// The bits of `throttle_reasons` that cost speed, named: "power cap, thermal slowdown"; empty if
/// none is set or nothing was measured.
std::string throttle_names(std::int64_t reasons);

/// Asks the driver's library about one GPU, without CUDA and without touching the GPU's streams.
class GpuMonitor {
 public:
  virtual ~GpuMonitor() = default;
  virtual GpuReading read() = 0;
};

/// Loads NVML (the driver brings it). `uuid` as CUDA gives it: "GPU-…". Nothing, with `why` filled
/// in, where the library or the GPU is not there: then a run has no such samples, which is no
/// error.
std::unique_ptr<GpuMonitor> open_nvml(const std::string& uuid, std::string& why,
                                      const std::string& library = "libnvidia-ml.so.1");

/// Reads a monitor at intervals from a thread of its own. A reading takes well below a millisecond
/// of that thread; the loop of training is not touched.
class GpuSampler {
 public:
  static constexpr double kInterval_s = 0.2;

  /// Throws Error kInternal for an interval below 0.1 s.
  explicit GpuSampler(std::unique_ptr<GpuMonitor> monitor, double interval_s = kInterval_s);
  ~GpuSampler();
  GpuSampler(const GpuSampler&) = delete;
  GpuSampler& operator=(const GpuSampler&) = delete;

  /// The readings since the last call, in order of time.
  std::vector<GpuReading> take();

 private:
  void run(const std::stop_token& stop);

  std::unique_ptr<GpuMonitor> monitor_;
  double interval_s_;
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::vector<GpuReading> readings_;
  std::jthread thread_;  ///< last, so that it ends before what it uses
};

}  // namespace gradsync
