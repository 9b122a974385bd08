// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "base/numbers.h"

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
inline constexpr std::uint64_t kRound = 6;       ///< in which order contenders have their blocks
inline constexpr std::uint64_t kPowerSgd = 7;    ///< first directions of powersgd
}  // namespace stream

/// How one image is shifted and mirrored.
struct Placement {
  static constexpr int kPadding = 4;

  int left = kPadding;  ///< corner of the crop in the image padded by 4 zeros on each side, 0 … 8
  int top = kPadding;
  bool flip = false;

  friend bool operator==(const Placement&, const Placement&) = default;
};

/// The placement of `image` in `epoch`: each of 81 crops and both directions equally likely. It
/// depends on nothing else, so not on ranks, threads, batches, nor on what device draws it.
GRADSYNC_HOST_DEVICE inline Placement random_placement(std::uint64_t seed, std::int64_t epoch,
                                                       std::int64_t image) {
  constexpr int kOffsets = 2 * Placement::kPadding + 1;
  const auto draw =
      static_cast<int>(below(mix(seed, stream::kAugment, static_cast<std::uint64_t>(epoch),
                                 static_cast<std::uint64_t>(image)),
                             kOffsets * kOffsets * 2));
  return {draw / 2 % kOffsets, draw / 2 / kOffsets, draw % 2 == 1};
}

}  // namespace gradsync
