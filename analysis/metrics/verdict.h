#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "timing/estimate.h"

namespace gradsync::report {

/// Two samples of times set one against the other.
struct TimeRatio {
  Estimate ratio;         ///< median(times) / median(base)
  std::string_view word;  ///< below
};

/// "faster" or "slower" where the 95 % interval of the ratio leaves out 1; "no difference" where it
/// holds 1; "too few" where a sample has not the 6 values that an interval needs; "n/a" where one
/// has none. `seed` is the bootstrap's.
std::string_view ratio_word(const Estimate& ratio);
TimeRatio time_ratio(std::span<const double> times, std::span<const double> base,
                     std::uint64_t seed);

}  // namespace gradsync::report
