#pragma once

#include <cstdint>

namespace gradsync {

/// Random numbers that are a pure function of what they are for: no state, no order of calls, the
/// same on every machine (std::shuffle and the standard distributions differ between libraries).

/// One step of SplitMix64 from state `x` (Steele, Lea, Flood 2014; constants of Vigna's
/// public-domain splitmix64.c): splitmix64(0) == 0xE220A8397B1DCDAF.
constexpr std::uint64_t splitmix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

/// 64 random bits for the key (seed, a, b, c).
constexpr std::uint64_t mix(std::uint64_t seed, std::uint64_t a, std::uint64_t b = 0,
                            std::uint64_t c = 0) {
  return splitmix64(splitmix64(splitmix64(splitmix64(seed) ^ a) ^ b) ^ c);
}

/// A number in [0, n) from 64 random bits; n < 2^32, then its bias is below 2^-32.
constexpr std::uint64_t below(std::uint64_t random, std::uint64_t n) {
  return ((random >> 32) * n) >> 32;
}

/// First key after the seed: what the numbers are for, so that no two uses share them.
namespace stream {
inline constexpr std::uint64_t kShuffle = 1;
inline constexpr std::uint64_t kAugment = 2;
inline constexpr std::uint64_t kSynthetic = 3;
inline constexpr std::uint64_t kIteration = 4;   ///< what a network draws, as for dropout
inline constexpr std::uint64_t kEvaluation = 5;  ///< the same in an evaluation
}  // namespace stream

}  // namespace gradsync
