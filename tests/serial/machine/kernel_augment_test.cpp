// The reference implementation that makes batches from resident bytes, against the loader it takes
// the place of.
#include <algorithm>
#include <numeric>

#include <doctest/doctest.h>

#include "base/half.h"
#include "data/augment.h"
#include "data/synthetic.h"
#include "machine/augment_kernel.h"
#include "machine/augmented_pixel.h"
#include "serial/test_folder.h"

namespace gradsync {
namespace {

constexpr std::int64_t kImages = 200;
constexpr std::uint64_t kSeed = 8;

/// A small set as bytes, as they would lie on a device.
struct Resident {
  Resident() {
    for (std::int64_t image = 0; image < kImages; ++image) {
      const auto bytes = data.pixels(Split::kTrain, image);
      const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data());
      pixels.insert(pixels.end(), first, first + bytes.size());
      labels.push_back(static_cast<std::uint8_t>(data.label(Split::kTrain, image)));
    }
    const ImageTransform transform(Layout::kNchw);
    for (const auto& channel : transform.levels())
      levels.insert(levels.end(), channel.begin(), channel.end());
    for (std::int64_t i = 0; i < kImages; ++i)
      order.push_back(i * 37 % kImages);
  }

  ResidentImages images() const { return {pixels.data(), labels.data(), levels.data()}; }

  TestFolder folder;
  Cifar10 data = [&] {
    synthesize(folder / "set", 1, kImages, 10);
    return Cifar10(folder / "set");
  }();
  std::vector<std::uint8_t> pixels, labels;
  std::vector<float> levels;
  std::vector<std::int64_t> order;
};

/// What the loader makes of an image.
std::vector<float> loaded(const Cifar10& data, std::int64_t image, std::int64_t epoch,
                          Layout layout, bool augment) {
  std::vector<float> out(kImageBytes);
  ImageTransform(layout).apply(data.pixels(Split::kTrain, image), out,
                               augment ? random_placement(kSeed, epoch, image) : Placement{});
  return out;
}

}  // namespace

TEST_CASE("resident batches are the loader's, bit for bit, in both orders of memory") {
  const Resident resident;
  for (const Layout layout : {Layout::kNchw, Layout::kNhwc})
    for (const bool augment : {true, false}) {
      EpochCursor cursor{kSeed, 4, 0, augment};
      for (const std::int64_t count : {std::int64_t{7}, std::int64_t{193}}) {
        const std::int64_t from = cursor.position;
        std::vector<float> images(static_cast<std::size_t>(count) * kImageBytes);
        std::vector<std::int64_t> labels(static_cast<std::size_t>(count));
        batch_on_host(
            resident.images(), resident.order.data(), cursor,
            {images.data(), labels.data(), count, ImageType::kFloat32, layout == Layout::kNhwc});
        CHECK(cursor.position == from + count);
        bool equal = true;
        for (std::size_t i = 0; i < labels.size(); ++i) {
          const std::int64_t image = resident.order[static_cast<std::size_t>(from) + i];
          const auto expected = loaded(resident.data, image, 4, layout, augment);
          equal =
              equal && std::equal(expected.begin(), expected.end(),
                                  images.begin() + static_cast<std::ptrdiff_t>(i * kImageBytes));
          equal = equal && labels[i] == resident.data.label(Split::kTrain, image);
        }
        CHECK(equal);
      }
    }
}

TEST_CASE("resident batches of 16 bits are the loader's floats, rounded to nearest") {
  const Resident resident;
  for (const auto& [type, half] : {std::pair{ImageType::kBfloat16, HalfType::kBfloat16},
                                   std::pair{ImageType::kFloat16, HalfType::kFloat16}}) {
    EpochCursor cursor{kSeed, 2, 5, 1};
    std::vector<std::uint16_t> images(kImageBytes);
    std::int64_t label = -1;
    batch_on_host(resident.images(), resident.order.data(), cursor,
                  {images.data(), &label, 1, type, true});
    const auto expected = loaded(resident.data, resident.order[5], 2, Layout::kNhwc, true);
    bool equal = true;
    for (std::size_t i = 0; i < images.size(); ++i)
      equal = equal && images[i] == to_half(expected[i], half);
    CHECK(equal);
  }
}

TEST_CASE("every crop and flip of a pixel is the transform's") {
  const Resident resident;
  std::vector<float> expected(kImageBytes);
  const ImageTransform transform(Layout::kNhwc);
  int wrong = 0;
  for (int draw = 0; draw < 162; ++draw) {
    const Placement placement{draw / 2 % 9, draw / 18, draw % 2 == 1};
    transform.apply(resident.data.pixels(Split::kTrain, 3), expected, placement);
    for (int i = 0; i < static_cast<int>(kImageBytes); ++i)
      wrong += expected[static_cast<std::size_t>(i)] !=
               augmented_pixel(resident.pixels.data() + 3 * kImageBytes, resident.levels.data(),
                               placement, pixel_place(i, true));
  }
  CHECK(wrong == 0);
}

}  // namespace gradsync
