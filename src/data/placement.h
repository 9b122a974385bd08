#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "data/random.h"

namespace gradsync {

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
