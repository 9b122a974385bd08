#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gradsync::calibrate {

/// Beyond the memory of a host: a slip of the pen.
inline constexpr std::int64_t kLargestMessageBytes = std::int64_t{1} << 40;

/// `first`, `first`·factor, … up to `last`; a `step` above 0 adds that instead. In bytes, rounded
/// up to whole float32 values. Throws Error kUsage for an empty or an endless range.
std::vector<std::int64_t> size_range(std::int64_t first, std::int64_t last, double factor,
                                     std::int64_t step);

/// The sizes of a text "1KiB:64MiB": powers of two from the first to the last. Throws Error kUsage.
std::vector<std::int64_t> parse_size_sweep(const std::string& text);

/// Rounded up to whole values.
std::int64_t whole_value_bytes(std::int64_t bytes, std::int64_t value_bytes = 4);

}  // namespace gradsync::calibrate
