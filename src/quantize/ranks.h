#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exchange/exchange.h"
#include "int8/scale.h"

namespace gradsync::quantize {

/// What ranks that share images out tell each other, exactly and in any order the same. Collective.
/// Integers are added up as halves that double precision holds exactly.
void add_over_ranks(Exchange& exchange, std::span<std::int64_t* const> integers);

/// The extremes over all ranks, in place; an empty range (low > high) counts for nothing.
void widen_over_ranks(Exchange& exchange, std::vector<Range>& ranges);

}  // namespace gradsync::quantize
