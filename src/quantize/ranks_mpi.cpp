#include <algorithm>

#include "quantize/ranks.h"

namespace gradsync::quantize {

namespace {

constexpr std::int64_t kHalf = std::int64_t{1} << 32;

void widen(Range& range, const Range& by) {
  if (by.low > by.high) return;
  if (range.low > range.high) range = by;
  range = {std::min(range.low, by.low), std::max(range.high, by.high)};
}

}  // namespace

void add_over_ranks(Exchange& exchange, std::span<std::int64_t* const> integers) {
  std::vector<double> halves;
  for (const std::int64_t* value : integers) {
    std::int64_t low = *value % kHalf;
    if (low < 0) low += kHalf;
    const std::int64_t high = (*value - low) / kHalf;
    halves.push_back(static_cast<double>(high));
    halves.push_back(static_cast<double>(low));
  }
  exchange.session().sum(halves);
  for (std::size_t i = 0; i < integers.size(); ++i)
    *integers[i] = static_cast<std::int64_t>(halves[2 * i]) * kHalf +
                   static_cast<std::int64_t>(halves[2 * i + 1]);
}

void widen_over_ranks(Exchange& exchange, std::vector<Range>& ranges) {
  const std::size_t count = ranges.size();
  std::vector<Range> all(exchange.session().rank() == 0
                             ? count * static_cast<std::size_t>(exchange.session().size())
                             : 0);
  exchange.session().gather(std::as_bytes(std::span(ranges)),
                            std::as_writable_bytes(std::span(all)));
  for (std::size_t i = 0; i < all.size(); ++i)
    widen(ranges[i % count], all[i]);
  exchange.session().broadcast(std::as_writable_bytes(std::span(ranges)));
}

}  // namespace gradsync::quantize
