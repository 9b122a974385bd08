// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "base/error.h"
#include "base/parse.h"
#include "model/image_batch.h"
#include "quantize/study.h"

namespace gradsync::quantize {

namespace {

/// The option that says how many images of a split.
const char* split_option(Split split) {
  return split == Split::kTest ? "--test-images" : "--calibration-images";
}

}  // namespace

ImageRange::ImageRange(const Cifar10& data, Split split, std::int64_t count)
    : data_(data), split_(split), count_(count) {
  if (count < 1 || count > data.size(split))
    throw Error(ExitCode::kUsage,
                fmt::format("{}: {} of '{}', which has {}", split_option(split),
                            count_text(count, "image"), data.folder().string(), data.size(split)),
                fmt::format("{} of at most {}", split_option(split), data.size(split)));
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

// Batch b belongs to rank b mod ranks. Operators within parallel_for use one thread, and so does a
// single batch, which parallel_for does not spread.
void for_each_batch(const StudyRanks& ranks, const ImageRange& images, const BatchWork& work) {
  constexpr std::int64_t kBatch = 50;
  const std::int64_t rank = ranks.exchange.session().rank(), size = ranks.exchange.session().size();
  const std::int64_t batches = (images.count() + kBatch - 1) / kBatch;
  const std::int64_t mine = (batches - rank + size - 1) / size;
  const auto work_on = [&](std::int64_t batch) {
    const std::int64_t first = batch * kBatch, count = std::min(kBatch, images.count() - first);
    std::vector<float> pixels = images.load(first, count);
    work(static_cast<std::size_t>(at::get_thread_num()), first,
         image_batch(pixels.data(), count, Layout::kNhwc));
  };
  ranks.exchange.session().together([&] {
    at::set_num_threads(mine > 1 ? static_cast<int>(ranks.threads) : 1);
    at::parallel_for(0, mine, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t item = begin; item < end; ++item)
        work_on(rank + item * size);
    });
    at::set_num_threads(1);
  });
}

void add_over_ranks(Exchange& exchange, std::span<std::int64_t* const> integers) {
  // Halves of integers, which double precision holds exactly.
  constexpr std::int64_t kHalf = std::int64_t{1} << 32;
  std::vector<double> halves;
  for (const std::int64_t* value : integers) {
    std::int64_t low = *value % kHalf;
    if (low < 0) low += kHalf;
    const std::int64_t high = (*value - low) / kHalf;
    halves.push_back(static_cast<double>(high));
    halves.push_back(static_cast<double>(low));
  }
  exchange.session().sum(halves);
  for (std::size_t i = 0; i < integers.size(); ++i)
    *integers[i] = static_cast<std::int64_t>(halves[2 * i]) * kHalf +
                   static_cast<std::int64_t>(halves[2 * i + 1]);
}

void widen_over_ranks(Exchange& exchange, std::vector<Range>& ranges) {
  const std::size_t count = ranges.size();
  std::vector<Range> all(exchange.session().rank() == 0
                             ? count * static_cast<std::size_t>(exchange.session().size())
                             : 0);
  exchange.session().gather(std::as_bytes(std::span(ranges)),
                            std::as_writable_bytes(std::span(all)));
  for (std::size_t i = 0; i < all.size(); ++i)
    widen(ranges[i % count], all[i]);
  exchange.session().broadcast(std::as_writable_bytes(std::span(ranges)));
}

void widen(Range& range, const Range& by) {
  if (by.low > by.high) return;
  if (range.low > range.high) range = by;
  range = {std::min(range.low, by.low), std::max(range.high, by.high)};
}

}  // namespace gradsync::quantize
