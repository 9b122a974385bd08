#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "data/placement.h"

namespace gradsync {

/// A place in an image of 3×32×32 values.
struct PixelPlace {
  int channel, y, x;
};

/// Where the value at `index` of an image lies: planes (NCHW) or channels together (NHWC).
GRADSYNC_HOST_DEVICE inline PixelPlace pixel_place(int index, bool channels_last) {
  constexpr int kSide = 32, kPlane = kSide * kSide;
  if (channels_last) return {index % 3, index / (3 * kSide), index / 3 % kSide};
  return {index / kPlane, index % kPlane / kSide, index % kSide};
}

/// One value of an image after crop, flip and normalization, as ImageTransform computes it.
/// `pixels`: 3072 bytes, planes R, G, B. `levels`: what a byte becomes, 256 values a channel.
GRADSYNC_HOST_DEVICE inline float augmented_pixel(const std::uint8_t* pixels, const float* levels,
                                                  const Placement& placement, PixelPlace place) {
  constexpr int kSide = 32;
  const int x =
      (placement.flip ? kSide - 1 - place.x : place.x) + placement.left - Placement::kPadding;
  const int y = place.y + placement.top - Placement::kPadding;
  const bool inside = x >= 0 && x < kSide && y >= 0 && y < kSide;
  const int level = inside ? pixels[(place.channel * kSide + y) * kSide + x] : 0;
  return levels[place.channel * 256 + level];
}

}  // namespace gradsync
