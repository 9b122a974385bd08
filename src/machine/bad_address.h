#pragma once

#include <cstdint>
#include <span>

#include "machine/stream_handle.h"

namespace gradsync {

/// What `lowest` holds while nothing was found.
inline constexpr unsigned long long kNoAddress = ~0ULL;

/// Lowers *lowest to the address of the first value that is NaN or infinite. Values may be of any
/// message in any order: whose they are is looked up later, by address. Device memory; see
/// kernels.h on launches.
void launch_lowest_bad(const float* values, std::int64_t count, unsigned long long* lowest,
                       StreamHandle stream);
/// The same on the CPU, in host memory.
void lowest_bad_on_host(std::span<const float> values, unsigned long long& lowest);

}  // namespace gradsync
