#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "analysis/verdict/clauses.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

/// Bits of NVML's clocks event reasons that cost speed: power, heat, hardware, sync boost.
constexpr std::int64_t kSlowdowns = 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80;

/// What was sampled on one GPU of one run.
struct Samples {
  std::vector<double> clock_hz, power_w;
  double memory_bytes = 0;
  std::size_t all = 0, held_back = 0;

  void add(const DeviceSample& sample) {
    ++all;
    if (sample.sm_clock_hz > 0) clock_hz.push_back(sample.sm_clock_hz);
    if (sample.power_w > 0) power_w.push_back(sample.power_w);
    memory_bytes = std::fmax(memory_bytes, sample.memory_used_bytes);
    if (sample.throttle_reasons > 0 && (sample.throttle_reasons & kSlowdowns) != 0) ++held_back;
  }

  double held_back_share() const {
    return static_cast<double>(held_back) / static_cast<double>(all);
  }
};

std::string number(const std::vector<double>& values, double unit, int decimals) {
  return values.empty() ? "n/a" : fmt::format("{:.{}f}", median(values) / unit, decimals);
}

std::string gpus_sentence(const std::string& run, std::int64_t rank, const Samples& gpu) {
  return fmt::format(
      "the GPU of rank {} in {}: {} GHz, {} W (medians of {} samples), {:.1f} GiB at most; clocks "
      "throttled in {} of the samples",
      rank, run, number(gpu.clock_hz, 1e9, 2), number(gpu.power_w, 1, 0), gpu.all,
      gpu.memory_bytes / (1 << 30), percent_text(gpu.held_back_share()));
}

}  // namespace

/// None for runs without samples of their GPUs.
Clauses gpu_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const MeasuredCell& cell : input.cells)
    for (const Run* run : cell.group.repeats) {
      std::map<std::int64_t, Samples> ranks;
      for (const DeviceSample& sample : run->reader->device_samples())
        ranks[sample.rank].add(sample);
      if (ranks.empty()) continue;
      // The slowest GPU determines the time of all.
      const auto worst = std::max_element(ranks.begin(), ranks.end(), [](auto& a, auto& b) {
        return a.second.held_back_share() < b.second.held_back_share();
      });
      clauses.push_back(clause_of("gpu.clocks",
                                  gpus_sentence(run->name, worst->first, worst->second), {&cell},
                                  "/gpu", cell.name));
    }
  return clauses;
}

}  // namespace gradsync::report
