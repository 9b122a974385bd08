// SPDX-License-Identifier: BSD-3-Clause
#include "machine/kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <doctest/doctest.h>

#include "base/numbers.h"
#include "data/augment.h"
#include "data/cifar10.h"
#include "machine/kernel_math.h"
#include "serial/test_folder.h"

// The reference implementations of the kernels against what they must equal; tests/gpu compares
// the kernels with them.

using namespace gradsync;

namespace {

LossScale after(LossScale scale, const std::vector<bool>& overflows) {
  for (const bool overflow : overflows)
    scale = next_loss_scale(scale, overflow);
  return scale;
}

}  // namespace

TEST_CASE(
    "the SGD reference is the formula, zeroes gradients, and does nothing else after an overflow") {
  std::vector<float> parameter = {1, -2, 3}, gradient = {4, 8, -16}, velocity = {0.5f, 0, 1};
  const SgdTensor tensor{parameter.data(), gradient.data(), velocity.data(), 3};
  StepState state;
  state.learning_rate = 0.5f;
  state.clip_factor = 0.5f;
  state.loss_scale.scale = 2;  // gradients count as 1, 2, −4
  SUBCASE("plain") {
    sgd_on_host(std::span(&tensor, 1), {0.5f, 0.25f, false}, state);
    CHECK(velocity == std::vector<float>{1.5f, 1.5f, -2.75f});
    CHECK(parameter == std::vector<float>{0.25f, -2.75f, 4.375f});
  }
  SUBCASE("nesterov") {
    sgd_on_host(std::span(&tensor, 1), {0.5f, 0.25f, true}, state);
    CHECK(velocity == std::vector<float>{1.5f, 1.5f, -2.75f});
    CHECK(parameter == std::vector<float>{0, -3.125f, 5.3125f});
  }
  SUBCASE("overflow") {
    state.first_bad = 0;
    sgd_on_host(std::span(&tensor, 1), {0.5f, 0.25f, false}, state);
    CHECK(parameter == std::vector<float>{1, -2, 3});
    CHECK(velocity == std::vector<float>{0.5f, 0, 1});
  }
  CHECK(gradient == std::vector<float>{0, 0, 0});
}

TEST_CASE("parts cover every value of every tensor once") {
  const std::vector<SgdTensor> tensors = {{nullptr, nullptr, nullptr, 2 * kSgdPart},
                                          {nullptr, nullptr, nullptr, 0},
                                          {nullptr, nullptr, nullptr, kSgdPart + 1}};
  const auto parts = sgd_parts(tensors);
  REQUIRE(parts.size() == 4);
  CHECK(parts[1].tensor == 0);
  CHECK(parts[1].part == 1);
  CHECK(parts[3].tensor == 2);
  CHECK(parts[3].part == 1);
}

TEST_CASE("packing takes the mean on its way to 16 bits, and unpacking brings it back") {
  const std::vector<float> values = {1, -3, 65520, 1e-8f};
  std::vector<std::uint16_t> wire(4);
  std::vector<float> back(4);
  pack_on_host(values, wire, 0.5f, HalfType::kBfloat16);
  unpack_on_host(wire, back, 1, HalfType::kBfloat16);
  CHECK(back[0] == 0.5f);
  CHECK(back[1] == -1.5f);
  CHECK(back[2] == 32768);
  pack_on_host(values, wire, 1, HalfType::kFloat16);
  unpack_on_host(wire, back, 2, HalfType::kFloat16);
  CHECK(back[1] == -6);
  CHECK(std::isinf(back[2]));
  CHECK(back[3] == 0);
}

TEST_CASE("bad values are those that are not finite") {
  CHECK(is_bad(std::nanf("")));
  CHECK(is_bad(-std::numeric_limits<float>::infinity()));
  CHECK_FALSE(is_bad(std::numeric_limits<float>::max()));
}

TEST_CASE("the loss scale follows torch.amp.GradScaler") {
  const LossScale start{LossScale::kStart, 0};
  CHECK(after(start, {true}) == LossScale{32768, 0});
  CHECK(after(start, {true, true, false}) == LossScale{16384, 1});
  CHECK(after(start, std::vector<bool>(1999, false)) == LossScale{65536, 1999});
  CHECK(after(start, std::vector<bool>(2000, false)) == LossScale{131072, 0});
  std::vector<bool> late_overflow(1999, false);
  late_overflow.push_back(true);
  late_overflow.insert(late_overflow.end(), 2000, false);
  CHECK(after(start, late_overflow) == LossScale{65536, 0});
  CHECK(next_loss_scale({0x1p127f, 1999}, false) == LossScale{0x1p127f, 0});
}

TEST_CASE("a step ends with the scale it leaves and nothing found bad") {
  StepState state;
  state.first_bad = 3;
  finish_step(state);
  CHECK(state.loss_scale == LossScale{1, 0});  // no scaling: bf16, fp32
  CHECK(state.skipped_steps == 1);
  CHECK_FALSE(skips_step(state));
  state.scales = true;
  state.first_bad = 0;
  finish_step(state);
  CHECK(state.loss_scale == LossScale{0.5f, 0});
}

// The reference implementation that makes batches from resident bytes, against the loader it takes
// the place of.

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
