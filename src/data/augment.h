// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "data/cifar10.h"
#include "stats/random.h"

namespace gradsync {

/// Order of an image's floats: planes of 32×32 per channel, or the channels of a pixel together.
enum class Layout { kNchw, kNhwc };

/// Mean and standard deviation of CIFAR-10's training pixels (0–1) per channel, the figures in
/// common use with PyTorch.
inline constexpr std::array<double, 3> kMean = {0.4914, 0.4822, 0.4465};
inline constexpr std::array<double, 3> kStandardDeviation = {0.2470, 0.2435, 0.2616};

/// Turns raw pixels into a network's input: crop (torchvision's RandomCrop(32, padding=4): the
/// border is zero *before* normalization), then flip, then (pixel/255 − mean)/deviation.
class ImageTransform {
 public:
  explicit ImageTransform(Layout layout);

  /// `pixels`: kImageBytes bytes, planes R, G, B. `out`: kImageBytes floats in the layout.
  /// The default placement leaves the image where it is: the form for test images.
  /// Throws Error kInternal if a span has another size.
  void apply(std::span<const std::byte> pixels, std::span<float> out,
             const Placement& placement = {}) const;

  /// A byte's value in the network, by channel.
  using Levels = std::array<float, 256>;
  const std::array<Levels, 3>& levels() const { return levels_; }

 private:
  void write_row(const Levels& levels, const std::byte* row, float* out,
                 const Placement& placement) const;

  std::ptrdiff_t channel_stride_, row_stride_, pixel_stride_;
  std::array<Levels, 3> levels_{};
};

}  // namespace gradsync
