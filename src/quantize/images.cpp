#include "quantize/images.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"

namespace gradsync::quantize {

ImageRange::ImageRange(const Cifar10& data, Split split, std::int64_t count)
    : data_(data), split_(split), count_(count) {
  if (count < 1 || count > data.size(split))
    throw Error(ExitCode::kUsage, fmt::format("{} images of '{}', which has {}", count,
                                              data.folder().string(), data.size(split)));
}

std::vector<float> ImageRange::load(std::int64_t first, std::int64_t images) const {
  std::vector<float> all(static_cast<std::size_t>(images) * kImageBytes);
  for (std::int64_t i = 0; i < images; ++i)
    transform_.apply(
        data_.pixels(split_, first + i),
        std::span(all).subspan(static_cast<std::size_t>(i) * kImageBytes, kImageBytes));
  return all;
}

std::vector<float> ImageRange::unit_pixels(std::int64_t image) const {
  std::vector<float> values;
  for (const std::byte pixel : data_.pixels(split_, image))
    values.push_back(static_cast<float>(2.0 * std::to_integer<int>(pixel) / 255.0 - 1.0));
  return values;
}

std::vector<ImageBatch> batches_of_rank(std::int64_t images, std::int64_t batch, int rank,
                                        int ranks) {
  std::vector<ImageBatch> mine;
  for (std::int64_t b = rank; b * batch < images; b += ranks)
    mine.push_back({b * batch, std::min(batch, images - b * batch)});
  return mine;
}

}  // namespace gradsync::quantize
