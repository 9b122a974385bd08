#pragma once

#include <cstdint>
#include <type_traits>

#include "base/half.h"
#include "data/placement.h"
#include "machine/augment_kernel.h"

namespace gradsync {

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
