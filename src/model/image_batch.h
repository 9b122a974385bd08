#pragma once

#include <torch/types.h>

#include "data/augment.h"

namespace gradsync {

/// Strides of [samples, 3, 32, 32] in the given layout.
inline std::vector<std::int64_t> image_strides(Layout layout) {
  constexpr std::int64_t kPlane = std::int64_t{kImageSide} * kImageSide;
  return layout == Layout::kNchw ? std::vector<std::int64_t>{3 * kPlane, kPlane, kImageSide, 1}
                                 : std::vector<std::int64_t>{3 * kPlane, 1, 3 * kImageSide, 3};
}

/// The floats of `samples` images, in the given layout, as a tensor [samples, 3, 32, 32] that does
/// not own them.
inline torch::Tensor image_batch(float* values, std::int64_t samples, Layout layout) {
  return torch::from_blob(values, {samples, 3, kImageSide, kImageSide}, image_strides(layout));
}

/// The same as a view of a flat tensor, on whatever device.
inline torch::Tensor image_batch(const torch::Tensor& values, std::int64_t samples, Layout layout) {
  return values.as_strided({samples, 3, kImageSide, kImageSide}, image_strides(layout));
}

}  // namespace gradsync
