#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "exchange/exchange.h"
#include "machine/gpus.h"
#include "machine/host.h"
#include "record/recorder.h"

namespace gradsync {

inline constexpr double kGpuInterval_s = 0.2, kHostInterval_s = 1;

/// How many the rank with most has, on all ranks. Collective.
std::int64_t most_of_ranks(Exchange& exchange, std::int64_t mine);

/// Calls `take` on rank 0 with each of all ranks' samples, those of a rank in order; a few of each
/// rank at once, so that rank 0 needs little memory. Collective.
template <typename Sample, typename Take>
void gather_samples(Exchange& exchange, std::vector<Sample> mine, Take&& take) {
  constexpr std::int64_t kNobody = -1;
  constexpr std::size_t kAtOnce = 64;
  const auto most =
      static_cast<std::size_t>(most_of_ranks(exchange, static_cast<std::int64_t>(mine.size())));
  Sample nobody;
  nobody.rank = kNobody;
  mine.resize(most, nobody);
  for (std::size_t first = 0; first < most; first += kAtOnce) {
    const auto some = std::span(mine).subspan(first, std::min(kAtOnce, most - first));
    for (const Sample& sample : exchange.session().gather(some))
      if (sample.rank != kNobody) take(sample);
  }
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
    using Sample =
        std::conditional_t<std::is_same_v<Reading, GpuReading>, DeviceSample, HostSample>;
    std::vector<Sample> mine;
    if (reader_)
      for (const Reading& reading : reader_->take()) {
        mine.push_back({reading, exchange.session().rank()});
        mine.back().at_s += clock_offset_s - start_s;
      }
    gather_samples(exchange, std::move(mine), [recorder](const auto& sample) {
      if (recorder != nullptr) recorder->add(sample);
    });
  }

 private:
  std::optional<PeriodicReader<Reading>> reader_;
};

}  // namespace gradsync
