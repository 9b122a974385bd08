#pragma once

#include <cstdint>
#include <span>

#include "base/numbers.h"

/// The values that collectives add, as C++ types that overloads distinguish.
namespace gradsync {

/// 16-bit values as their bits; not integers, and not each other.
struct Bfloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

/// To the type in which values of this type are added: double for double, else float.
inline float widen(float value) {
  return value;
}
inline double widen(double value) {
  return value;
}
inline float widen(Bfloat16 value) {
  return from_bf16(value.bits);
}
inline float widen(Float16 value) {
  return from_fp16(value.bits);
}

/// Back, rounding to nearest even.
inline void narrow(float value, float& to) {
  to = value;
}
inline void narrow(double value, double& to) {
  to = value;
}
inline void narrow(float value, Bfloat16& to) {
  to.bits = to_bf16(value);
}
inline void narrow(float value, Float16& to) {
  to.bits = to_fp16(value);
}

/// Bits as values of a 16-bit type.
template <typename T>
std::span<T> as_values(std::span<std::uint16_t> bits) {
  static_assert(sizeof(T) == sizeof(std::uint16_t));
  return {reinterpret_cast<T*>(bits.data()), bits.size()};
}

template <typename T>
using SumOf = decltype(widen(T()));

}  // namespace gradsync
