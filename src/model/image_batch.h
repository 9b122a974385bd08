// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/types.h>

#include "data/augment.h"
#include "options/networks.h"

namespace gradsync {

/// Sizes of a batch of the network's samples.
inline std::vector<std::int64_t> batch_sizes(const NetworkInput& input, std::int64_t samples) {
  std::vector<std::int64_t> sizes = {samples};
  sizes.insert(sizes.end(), input.sizes.begin(), input.sizes.end());
  return sizes;
}

/// Strides of a batch in the given layout; of what is no image, in the order of its sizes.
inline std::vector<std::int64_t> batch_strides(at::IntArrayRef sizes, Layout layout) {
  if (layout == Layout::kNhwc && sizes.size() == 4) return c10::get_channels_last_strides_2d(sizes);
  const auto strides = c10::contiguous_strides(sizes);
  return {strides.begin(), strides.end()};
}

/// The floats of `samples` images of CIFAR-10, in the given layout, as a tensor [samples, 3, 32,
/// 32] that does not own them.
inline torch::Tensor image_batch(float* values, std::int64_t samples, Layout layout) {
  const auto sizes = batch_sizes({}, samples);
  return torch::from_blob(values, sizes, batch_strides(sizes, layout));
}

}  // namespace gradsync
