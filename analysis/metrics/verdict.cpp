#include "analysis/metrics/verdict.h"

#include <cmath>

namespace gradsync::report {

namespace {

std::string_view word_for(const Estimate& ratio) {
  if (!std::isfinite(ratio.value)) return "n/a";
  if (!ratio.has_interval()) return "too few";
  if (ratio.holds(1)) return "no difference";
  return ratio.value < 1 ? "faster" : "slower";
}

}  // namespace

TimeRatio time_ratio(std::span<const double> times, std::span<const double> base,
                     std::uint64_t seed) {
  const Estimate ratio = ratio_estimate(times, base, seed);
  return {ratio, word_for(ratio)};
}

}  // namespace gradsync::report
