#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "data/cifar10.h"

namespace gradsync {

/// Order of an image's floats: planes of 32×32 per channel, or the channels of a pixel together.
enum class Layout { kNchw, kNhwc };

/// Mean and standard deviation of CIFAR-10's training pixels (0–1) per channel, the figures in
/// common use with PyTorch.
inline constexpr std::array<double, 3> kMean = {0.4914, 0.4822, 0.4465};
inline constexpr std::array<double, 3> kStandardDeviation = {0.2470, 0.2435, 0.2616};

/// How one image is shifted and mirrored.
struct Placement {
  static constexpr int kPadding = 4;

  int left = kPadding;  ///< corner of the crop in the image padded by 4 zeros on each side, 0 … 8
  int top = kPadding;
  bool flip = false;

  friend bool operator==(const Placement&, const Placement&) = default;
};

/// The placement of `image` in `epoch`: each of 81 crops and both directions equally likely. It
/// depends on nothing else, so not on ranks, threads or batches.
Placement random_placement(std::uint64_t seed, std::int64_t epoch, std::int64_t image);

/// Turns raw pixels into a network's input: crop (torchvision's RandomCrop(32, padding=4): the
/// border is zero *before* normalisation), then flip, then (pixel/255 − mean)/deviation.
class ImageTransform {
 public:
  explicit ImageTransform(Layout layout);

  /// `pixels`: kImageBytes bytes, planes R, G, B. `out`: kImageBytes floats in the layout.
  /// The default placement leaves the image where it is: the form for test images.
  /// Throws Error kInternal if a span has another size.
  void apply(std::span<const std::byte> pixels, std::span<float> out,
             const Placement& placement = {}) const;

 private:
  using Levels = std::array<float, 256>;

  void write_row(const Levels& levels, const std::byte* row, float* out,
                 const Placement& placement) const;

  std::ptrdiff_t channel_stride_, row_stride_, pixel_stride_;
  std::array<Levels, 3> levels_{};
};

}  // namespace gradsync
