#include "options/sizes.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/parse.h"

namespace gradsync::calibrate {

namespace {

constexpr std::size_t kMostSizes = 10000;

void require_range(std::int64_t first, std::int64_t last, double factor, std::int64_t step) {
  if (first < 1 || last > kLargestMessageBytes || last < first)
    throw Error(ExitCode::kUsage,
                fmt::format("sizes from {} to {} B: the first is above the last, or the last above "
                            "{} B",
                            first, last, kLargestMessageBytes),
                "give increasing sizes, as -b 1KiB -e 64MiB");
  if (step < 0 || (step == 0 && !(factor > 1)))
    throw Error(ExitCode::kUsage,
                fmt::format("a factor of {} between the sizes never reaches the last", factor),
                "give a factor above 1, as -f 2, or a step in bytes, as -i 1MiB");
}

}  // namespace

std::int64_t whole_value_bytes(std::int64_t bytes, std::int64_t value_bytes) {
  return (bytes + value_bytes - 1) / value_bytes * value_bytes;
}

std::vector<std::int64_t> size_range(std::int64_t first, std::int64_t last, double factor,
                                     std::int64_t step) {
  require_range(first, last, factor, step);
  std::vector<std::int64_t> sizes;
  for (double bytes = static_cast<double>(first); bytes <= static_cast<double>(last);) {
    const std::int64_t whole = whole_value_bytes(static_cast<std::int64_t>(bytes));
    if (sizes.empty() || whole != sizes.back()) sizes.push_back(whole);
    if (sizes.size() > kMostSizes)
      throw Error(ExitCode::kUsage, fmt::format("more than {} sizes", kMostSizes),
                  "give a larger step or factor");
    bytes = step > 0 ? bytes + static_cast<double>(step) : bytes * factor;
  }
  return sizes;
}

std::vector<std::int64_t> parse_size_sweep(const std::string& text) {
  const auto ends = split_list(text, ':');
  if (ends.size() != 2)
    throw Error(ExitCode::kUsage, fmt::format("\"{}\" is not FIRST:LAST", text),
                "give two sizes, as 1KiB:16MiB");
  return size_range(parse_size(ends[0]), parse_size(ends[1]), 2, 0);
}

}  // namespace gradsync::calibrate
