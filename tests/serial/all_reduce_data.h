// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <type_traits>

#include "transport/transport.h"

/// Data for tests of all-reduces, and what must come out.
namespace gradsync::test {

/// What rank `rank` contributes at `i`, in [-1, 1): the same wherever it is computed.
inline double contribution(std::uint64_t seed, int rank, std::size_t i) {
  std::uint64_t x = seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(rank) * 0xbf58476du + i;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>(static_cast<std::int64_t>(x >> 11) - (std::int64_t{1} << 52)) *
         0x1p-52;
}

/// Half the distance from 1 to the next value.
template <typename T>
double unit_roundoff() {
  if (std::is_same_v<T, double>) return 0x1p-53;
  if (std::is_same_v<T, Bfloat16>) return 0x1p-8;
  return std::is_same_v<T, Float16> ? 0x1p-11 : 0x1p-24;
}

template <typename T>
T entry(std::uint64_t seed, int rank, std::size_t i) {
  T value{};
  narrow(static_cast<SumOf<T>>(contribution(seed, rank, i)), value);
  return value;
}

/// Whether every value is within (n − 1)·eps·Σ|x| of the sum in double, times `factor`, with one
/// rounding more for the factor and one for the result; `eps` adds up those of the types that the
/// sums pass through. 1e-7 covers results in fp16's subnormal range.
template <typename T>
bool right(std::span<const T> data, std::uint64_t seed, int ranks, double factor,
           double eps = unit_roundoff<T>()) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    double sum = 0, size = 0;
    for (int r = 0; r < ranks; ++r) {
      const auto x = static_cast<double>(widen(entry<T>(seed, r, i)));
      sum += x;
      size += std::abs(x);
    }
    const double bound = (ranks + 1) * eps * size * factor + (eps > 1e-5 ? 1e-7 : 1e-300);
    if (!(std::abs(static_cast<double>(widen(data[i])) - factor * sum) <= bound)) return false;
  }
  return true;
}

/// Few, some, primes, just above a power of two, and now and then a million.
inline std::size_t random_count(std::mt19937_64& random) {
  switch (random() % 8) {
    case 0:
      return random() % 3;
    case 1:
      return 1 + random() % 64;
    case 2:
      return 997 + random() % 100;
    case 3:
      return 65'537;
    case 4:
      return random() % 200 == 0 ? 1'000'003 : 4'099;
    default:
      return random() % 3'000;
  }
}

}  // namespace gradsync::test
