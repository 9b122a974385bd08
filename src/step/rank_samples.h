#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "device/nvml.h"
#include "exchange/exchange.h"
#include "host/counters.h"
#include "host/periodic_reader.h"
#include "record/recorder.h"

namespace gradsync {

inline constexpr double kGpuInterval_s = 0.2, kHostInterval_s = 1;

/// A reading as it is recorded; the rank's clock + `to_start_s` is the time since the run began.
DeviceSample sample_of(const GpuReading& reading, int rank, double to_start_s);
HostSample sample_of(const HostReading& reading, int rank, double to_start_s);

/// How many the rank with most has, on all ranks. Collective.
std::int64_t most_of_ranks(Exchange& exchange, std::int64_t mine);

/// Those of all ranks on rank 0, in order of rank; nothing elsewhere. Collective.
template <typename Sample>
std::vector<Sample> gather_samples(Exchange& exchange, std::vector<Sample> mine) {
  constexpr std::int64_t kNobody = -1;
  const std::int64_t most = most_of_ranks(exchange, static_cast<std::int64_t>(mine.size()));
  if (most == 0) return {};
  Sample nobody;
  nobody.rank = kNobody;
  mine.resize(static_cast<std::size_t>(most), nobody);
  std::vector<Sample> all(
      exchange.rank() == 0 ? mine.size() * static_cast<std::size_t>(exchange.size()) : 0);
  exchange.control().gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  std::erase_if(all, [](const Sample& one) { return one.rank == kNobody; });
  return all;
}

/// Counters that some ranks read at intervals, on their way into the run file.
template <typename Reading>
class RankSamples {
 public:
  /// Reads at once and every `interval_s`; an empty `read`: this rank reads nothing.
  RankSamples(std::function<Reading()> read, double interval_s) {
    if (read) reader_.emplace(std::move(read), interval_s);
  }

  /// Brings what all ranks have read since the last call, and read now, to rank 0, which records
  /// it. A rank's clock + `clock_offset_s` is rank 0's, whose run began at `start_s`. Outside the
  /// iterations. Collective.
  void record(Exchange& exchange, double clock_offset_s, double start_s, Recorder* recorder) {
    std::vector<decltype(sample_of(Reading(), 0, 0))> mine;
    if (reader_)
      for (const Reading& reading : reader_->take())
        mine.push_back(sample_of(reading, exchange.rank(), clock_offset_s - start_s));
    for (const auto& sample : gather_samples(exchange, std::move(mine)))
      if (recorder != nullptr) recorder->add(sample);
  }

 private:
  std::optional<PeriodicReader<Reading>> reader_;
};

}  // namespace gradsync
