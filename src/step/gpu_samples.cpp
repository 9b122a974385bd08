#include "step/gpu_samples.h"

#include <algorithm>

namespace gradsync {

namespace {

DeviceSample sample_of(const GpuReading& reading, int rank, double to_start_s) {
  return {rank,
          reading.at_s + to_start_s,
          reading.memory_used_bytes,
          reading.sm_clock_hz,
          reading.memory_clock_hz,
          reading.power_w,
          reading.temperature_c,
          reading.throttle_reasons};
}

/// How many samples the rank with most has, on all ranks.
std::int64_t most_samples(Exchange& exchange, std::int64_t mine) {
  std::vector<std::int64_t> all(exchange.rank() == 0 ? static_cast<std::size_t>(exchange.size())
                                                     : 0);
  exchange.control().gather(std::as_bytes(std::span(&mine, 1)),
                            std::as_writable_bytes(std::span(all)));
  std::int64_t most = all.empty() ? 0 : *std::max_element(all.begin(), all.end());
  exchange.control().broadcast(std::as_writable_bytes(std::span(&most, 1)));
  return most;
}

}  // namespace

GpuSamples::GpuSamples(std::unique_ptr<GpuMonitor> monitor, double interval_s) {
  if (monitor) sampler_ = std::make_unique<GpuSampler>(std::move(monitor), interval_s);
}

void GpuSamples::record(Exchange& exchange, double clock_offset_s, double start_s,
                        Recorder* recorder) {
  constexpr std::int64_t kNobody = -1;
  std::vector<DeviceSample> mine;
  if (sampler_)
    for (const GpuReading& reading : sampler_->take())
      mine.push_back(sample_of(reading, exchange.rank(), clock_offset_s - start_s));
  const std::int64_t most = most_samples(exchange, static_cast<std::int64_t>(mine.size()));
  if (most == 0) return;
  DeviceSample nobody;
  nobody.rank = kNobody;
  mine.resize(static_cast<std::size_t>(most), nobody);
  std::vector<DeviceSample> all(
      exchange.rank() == 0 ? mine.size() * static_cast<std::size_t>(exchange.size()) : 0);
  exchange.control().gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  for (const DeviceSample& sample : all)
    if (recorder != nullptr && sample.rank != kNobody) recorder->add(sample);
}

}  // namespace gradsync
