#include "analysis/metrics/verdict.h"

#include <cmath>

namespace gradsync::report {

std::string_view ratio_word(const Estimate& ratio) {
  if (!std::isfinite(ratio.value)) return "n/a";
  if (!ratio.has_interval()) return "too few";
  if (ratio.holds(1)) return "no difference";
  return ratio.value < 1 ? "faster" : "slower";
}

TimeRatio time_ratio(std::span<const double> times, std::span<const double> base,
                     std::uint64_t seed) {
  const Estimate ratio = ratio_estimate(times, base, seed);
  return {ratio, ratio_word(ratio)};
}

}  // namespace gradsync::report
