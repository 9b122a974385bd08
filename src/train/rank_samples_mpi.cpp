#include "train/rank_samples.h"

namespace gradsync {

DeviceSample sample_of(const GpuReading& reading, int rank, double to_start_s) {
  return {rank,
          reading.at_s + to_start_s,
          reading.memory_used_bytes,
          reading.sm_clock_hz,
          reading.memory_clock_hz,
          reading.power_w,
          reading.temperature_c,
          reading.throttle_reasons,
          reading.busy,
          reading.memory_busy,
          reading.energy_j};
}

HostSample sample_of(const HostReading& reading, int rank, double to_start_s) {
  return {rank,
          reading.at_s + to_start_s,
          reading.package_energy_j,
          reading.memory_energy_j,
          reading.memory_traffic_bytes,
          reading.sent_bytes,
          reading.received_bytes};
}

std::int64_t most_of_ranks(Exchange& exchange, std::int64_t mine) {
  return static_cast<std::int64_t>(exchange.session().max(static_cast<double>(mine)));
}

}  // namespace gradsync
