// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "base/numbers.h"
#include "machine/kernels.h"
#include "stats/random.h"

namespace gradsync {

/// Whether a value is NaN or infinite: all bits of its exponent are set.
GRADSYNC_HOST_DEVICE inline bool is_bad(float value) {
  constexpr std::uint32_t kExponent = 0x7f800000u;
  return (std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent;
}

struct SgdFactors {
  float learning_rate, gradient_scale, momentum, weight_decay;
};

/// One value's step of SGD as torch.optim.SGD computes it (dampening 0), with the gradient taken
/// times `gradient_scale`; leaves the gradient zeroed, so there is no zeroing pass.
template <bool kNesterov>
GRADSYNC_HOST_DEVICE inline void sgd_update(float& parameter, float& gradient, float& velocity,
                                            const SgdFactors& factors) {
  const float g = factors.gradient_scale * gradient + factors.weight_decay * parameter;
  const float v = factors.momentum * velocity + g;
  velocity = v;
  parameter -= factors.learning_rate * (kNesterov ? g + factors.momentum * v : v);
  gradient = 0;
}

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

inline constexpr int kImageValues = 3072;

template <ImageType kType>
using ImageValue = std::conditional_t<kType == ImageType::kFloat32, float, std::uint16_t>;

/// A value as a batch of this type holds it.
template <ImageType kType>
GRADSYNC_HOST_DEVICE inline ImageValue<kType> image_value(float value) {
  if constexpr (kType == ImageType::kFloat32)
    return value;
  else
    return to_half(value, kType == ImageType::kBfloat16 ? HalfType::kBfloat16 : HalfType::kFloat16);
}

GRADSYNC_HOST_DEVICE inline Placement placement_of(const EpochCursor& cursor, std::int64_t image) {
  if (cursor.augment == 0) return {};
  return random_placement(cursor.seed, cursor.epoch, image);
}

}  // namespace gradsync
