#pragma once

#include <string>
#include <string_view>

namespace gradsync::report::published {

enum class Dimension { kTime, kBandwidth, kBytes, kRatio, kRate, kUnknown };

/// What a printed unit means: value · factor is in seconds, bytes per second, bytes, 1 or 1/s.
struct Unit {
  Dimension dimension = Dimension::kUnknown;
  double factor = 1;
  double total = 0;  ///< N of "of N", else 0
  bool percent = false;
};

/// ms, s, min, MB/s, GiB/s, Gbit/s, %, 1, "of 10000", images/s, ...; kUnknown for anything else.
Unit parse_unit(std::string_view text);

/// "a time", "a bandwidth", ...
std::string_view dimension_text(Dimension dimension);

}  // namespace gradsync::report::published
