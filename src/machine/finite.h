#pragma once

#include <bit>
#include <cstdint>

#include "base/host_device.h"

namespace gradsync {

/// Whether a value is NaN or infinite: all bits of its exponent are set.
GRADSYNC_HOST_DEVICE inline bool is_bad(float value) {
  constexpr std::uint32_t kExponent = 0x7f800000u;
  return (std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent;
}

/// Which tensor the value at `index` belongs to: `offsets` has `tensors` + 1 entries, rising, the
/// first 0, the last beyond `index`.
GRADSYNC_HOST_DEVICE inline std::int64_t tensor_at(std::int64_t index, const std::int64_t* offsets,
                                                   std::int64_t tensors) {
  std::int64_t first = 0, last = tensors;
  while (last - first > 1) {
    const std::int64_t middle = (first + last) / 2;
    (offsets[middle] <= index ? first : last) = middle;
  }
  return first;
}

}  // namespace gradsync
