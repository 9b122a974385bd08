#pragma once

#include <bit>
#include <cstdint>
#include <span>

/// Conversions between float and the 16-bit types that travel, rounding to nearest even.
namespace gradsync {

inline float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;  // rounding up must not turn NaN into 0
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float from_fp16(std::uint16_t bits) {
  return static_cast<float>(std::bit_cast<_Float16>(bits));
}

inline std::uint16_t to_fp16(float value) {
  return std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
}

}  // namespace gradsync
