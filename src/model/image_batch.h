#pragma once

#include <torch/torch.h>

#include "data/augment.h"

namespace gradsync {

/// The floats of `samples` images, in the given layout, as a tensor [samples, 3, 32, 32] that does
/// not own them.
inline torch::Tensor image_batch(float* values, std::int64_t samples, Layout layout) {
  constexpr std::int64_t kPlane = std::int64_t{kImageSide} * kImageSide;
  const std::vector<std::int64_t> strides =
      layout == Layout::kNchw ? std::vector<std::int64_t>{3 * kPlane, kPlane, kImageSide, 1}
                              : std::vector<std::int64_t>{3 * kPlane, 1, 3 * kImageSide, 3};
  return torch::from_blob(values, {samples, 3, kImageSide, kImageSide}, strides);
}

}  // namespace gradsync
