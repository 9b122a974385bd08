#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exchange/exchange.h"
#include "quantize/scale.h"

namespace gradsync::quantize {

/// What ranks with different images exchange; exact, and independent of the order. Collective.
/// Integers are added up as halves that double precision holds exactly.
void add_over_ranks(Exchange& exchange, std::span<std::int64_t* const> integers);

/// The extremes over all ranks, in place; an empty range (low > high) counts for nothing.
void widen_over_ranks(Exchange& exchange, std::vector<Range>& ranges);

}  // namespace gradsync::quantize
