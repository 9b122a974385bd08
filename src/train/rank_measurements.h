// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/table.h"
#include "comm/places.h"
#include "comm/session.h"
#include "exchange/exchange.h"
#include "machine/gpus.h"
#include "machine/host.h"
#include "record/recorder.h"
#include "train/compute_settings.h"

namespace gradsync {

/// What calibrate_ranks measures.
struct CalibrationRequest {
  std::vector<std::int64_t> sizes = {};   ///< of every collective of the modes
  std::vector<BucketShape> buckets = {};  ///< sizes of their kind
  bool print = false;                     ///< on rank 0, what the rows add up to
  /// Asked before each measurement, on all ranks, whether to measure no more; told how far this has
  /// come. Empty: never.
  std::function<bool(const std::string& how_far)> stops = {};
};

/// Calibrates collectives on the ranks and over the transport of training, and records the rows
/// (`recorders` on rank 0; null ones are left out). Throws Error kCheckFailed on all ranks if a
/// value is wrong, kOutOfMemory before anything is measured; with `stops` rank 0 warns in its
/// place, and nothing is measured. Collective.
void calibrate_ranks(const Session& session, Transport& transport,
                     const CalibrationRequest& request, const std::vector<Recorder*>& recorders,
                     DeviceLane* lane);

/// The readings of all ranks, on rank 0 (none elsewhere). Collective.
ClockRow clock_row(const Session& session, const ClockOffset& mine, const char* when, double at_s);

/// "clocks: drift at most 0.12 us in 35.1 s (0.003 ppm), uncertainty 0.30 us": of the rank that
/// drifted most, with the uncertainties of both readings added.
std::string drift_text(const ClockRow& start, const ClockRow& end);

/// Times a matrix product in the precision of the run on all ranks at once, for at least 0.2 s and
/// five calls: the most that the network's own products can reach here. Records it and prints the
/// least and the most of the ranks. Collective.
void probe_arithmetic(const Session& session, const ComputeSettings& compute, bool tf32,
                      const std::vector<Recorder*>& recorders);

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
