// SPDX-License-Identifier: BSD-3-Clause
#include "data/augment.h"

#include <algorithm>

#include "base/error.h"

namespace gradsync {

static_assert(kImageSide == 32);

ImageTransform::ImageTransform(Layout layout)
    : channel_stride_(layout == Layout::kNchw ? kImageSide * kImageSide : 1),
      row_stride_(layout == Layout::kNchw ? kImageSide : 3 * kImageSide),
      pixel_stride_(layout == Layout::kNchw ? 1 : 3) {
  for (std::size_t channel = 0; channel < 3; ++channel) {
    for (std::size_t value = 0; value < 256; ++value) {
      const double scaled = static_cast<double>(value) / 255.0;
      levels_[channel][value] =
          static_cast<float>((scaled - kMean[channel]) / kStandardDeviation[channel]);
    }
  }
}

void ImageTransform::apply(std::span<const std::byte> pixels, std::span<float> out,
                           const Placement& placement) const {
  if (pixels.size() != kImageBytes || out.size() != kImageBytes) {
    throw Error(ExitCode::kInternal, "an image of another size than 3x32x32");
  }
  for (int channel = 0; channel < 3; ++channel) {
    const std::byte* plane = pixels.data() + channel * kImageSide * kImageSide;
    for (int y = 0; y < kImageSide; ++y) {
      const int source_y = y + placement.top - Placement::kPadding;
      const bool inside = source_y >= 0 && source_y < kImageSide;
      write_row(levels_[static_cast<std::size_t>(channel)],
                inside ? plane + source_y * kImageSide : nullptr,
                out.data() + channel * channel_stride_ + y * row_stride_, placement);
    }
  }
}

void ImageTransform::write_row(const Levels& levels, const std::byte* row, float* out,
                               const Placement& placement) const {
  const std::ptrdiff_t step = placement.flip ? -pixel_stride_ : pixel_stride_;
  if (placement.flip) out += (kImageSide - 1) * pixel_stride_;
  const int shift = placement.left - Placement::kPadding;
  const int first = row == nullptr ? kImageSide : std::max(0, -shift);
  const int last = row == nullptr ? kImageSide : std::min(kImageSide, kImageSide - shift);
  for (int x = 0; x < first; ++x)
    out[x * step] = levels[0];
  for (int x = first; x < last; ++x) {
    out[x * step] = levels[std::to_integer<std::size_t>(row[x + shift])];
  }
  for (int x = last; x < kImageSide; ++x)
    out[x * step] = levels[0];
}

}  // namespace gradsync
