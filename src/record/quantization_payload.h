#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "record/quantization.h"

namespace gradsync {

/// The journal's record of a Quantization: JSON; NaN is null and infinities are "inf" and "-inf".
std::vector<std::byte> encode(const Quantization& quantization);

/// The inverse; nothing if the bytes are not such a record. Never throws for what they hold.
std::optional<Quantization> decode_quantization(std::span<const std::byte> payload);

}  // namespace gradsync
