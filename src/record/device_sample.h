#pragma once

#include <cstdint>
#include <limits>

namespace gradsync {

/// What the driver said of the GPU of one rank at one moment; `/gpu`. NaN, or −1 for the reasons,
/// where it said nothing.
struct DeviceSample {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  std::int64_t rank = 0;
  double at_s = kUnknown;  ///< since the start of the run, on rank 0's clock
  double memory_used_bytes = kUnknown;
  double sm_clock_hz = kUnknown, memory_clock_hz = kUnknown;
  double power_w = kUnknown, temperature_c = kUnknown;
  std::int64_t throttle_reasons = -1;  ///< NVML's bits
};

}  // namespace gradsync
