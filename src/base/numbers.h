// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstdint>
#include <span>

/// Marks a function that kernels and the CPU share: nvcc compiles it for both, any other compiler
/// sees a plain function. So a kernel and its CPU reference implementation compute the same
/// numbers.
#ifdef __CUDACC__
#define GRADSYNC_HOST_DEVICE __host__ __device__
#else
#define GRADSYNC_HOST_DEVICE
#endif

/// Types of the numbers that travel between ranks, and conversions between float and the 16-bit
/// types, rounding to nearest even.
namespace gradsync {

enum class ValueType : std::uint8_t {
  kFloat32,
  kBfloat16,
  kFloat16,
  kByte,
  kFloat64,
  kInt8,
  kInt32
};

/// Bytes of one value.
constexpr std::int64_t value_bytes(ValueType type) {
  constexpr std::int64_t kBytes[] = {4, 2, 2, 1, 8, 1, 4};
  return kBytes[static_cast<int>(type)];
}

/// The 16-bit types that gradients may travel as.
enum class HalfType { kBfloat16, kFloat16 };

GRADSYNC_HOST_DEVICE inline float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

GRADSYNC_HOST_DEVICE inline std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;  // rounding up must not turn NaN into 0
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// from_fp16 and to_fp16 for compilers without _Float16.
GRADSYNC_HOST_DEVICE inline float from_fp16_portable(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16, exponent = bits & 0x7c00u;
  const std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent | mantissa) + (112u << 10)) << 13);
}

GRADSYNC_HOST_DEVICE inline std::uint16_t to_fp16_portable(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  std::uint32_t half = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  if (magnitude <
      0x38800000u)  // below 2^-14: beside 0.5 a float's last place is that of such halves
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  if (magnitude >= 0x477ff000u) half = 0x7c00;  // 65,520 and above round to infinity
  if (magnitude > 0x7f800000u) half = 0x7e00;
  return static_cast<std::uint16_t>(sign | half);
}

#if defined(__FLT16_MANT_DIG__) && !defined(__CUDACC__)
GRADSYNC_HOST_DEVICE inline float from_fp16(std::uint16_t bits) {
  return static_cast<float>(std::bit_cast<_Float16>(bits));
}

GRADSYNC_HOST_DEVICE inline std::uint16_t to_fp16(float value) {
  return std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
}
#else
GRADSYNC_HOST_DEVICE inline float from_fp16(std::uint16_t bits) {
  return from_fp16_portable(bits);
}

GRADSYNC_HOST_DEVICE inline std::uint16_t to_fp16(float value) {
  return to_fp16_portable(value);
}
#endif

GRADSYNC_HOST_DEVICE inline std::uint16_t to_half(float value, HalfType type) {
  return type == HalfType::kBfloat16 ? to_bf16(value) : to_fp16(value);
}

GRADSYNC_HOST_DEVICE inline float from_half(std::uint16_t bits, HalfType type) {
  return type == HalfType::kBfloat16 ? from_bf16(bits) : from_fp16(bits);
}

}  // namespace gradsync
