// SPDX-License-Identifier: BSD-3-Clause
#include "data/loader.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "data/augment.h"
#include "data/cifar10.h"
#include "serial/expect_error.h"
#include "serial/test_folder.h"

namespace gradsync {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kSteps = 40, kBatch = 5;

struct LoaderFixture {
  LoaderFixture() { synthesize(folder / "data", 1, kSteps * kBatch, 10); }

  TestFolder folder;
  const Cifar10& data() {
    if (!opened) opened.emplace(folder / "data");
    return *opened;
  }
  std::optional<Cifar10> opened;
};

std::vector<std::int64_t> images_of(std::int64_t step) {
  std::vector<std::int64_t> images;
  for (std::int64_t i = 0; i < kBatch; ++i)
    images.push_back((step * 37 + i * 11) % 200);
  return images;
}

LoaderOptions options_with(std::int64_t threads, std::int64_t prefetch = 3) {
  LoaderOptions options;
  options.steps = kSteps;
  options.epoch = 4;
  options.seed = 8;
  options.augment = true;
  options.threads = threads;
  options.prefetch = prefetch;
  return options;
}

/// The batch of a step, made with the parts alone.
Batch batch_by_hand(const Cifar10& data, std::int64_t step) {
  Batch batch;
  const ImageTransform transform(Layout::kNchw);
  for (const std::int64_t image : images_of(step)) {
    std::vector<float> out(kImageBytes);
    transform.apply(data.pixels(Split::kTrain, image), out, random_placement(8, 4, image));
    batch.images.insert(batch.images.end(), out.begin(), out.end());
    batch.labels.push_back(data.label(Split::kTrain, image));
  }
  return batch;
}

TEST_CASE_FIXTURE(LoaderFixture, "batches are the same, in order, for every number of threads") {
  for (const std::int64_t threads : {0, 1, 2, 7}) {
    for (const std::int64_t prefetch : {1, 3, 100}) {
      CAPTURE(threads);
      Loader loader(data(), images_of, options_with(threads, prefetch));
      for (std::int64_t step = 0; step < kSteps; ++step) {
        Batch batch = loader.next();
        const Batch expected = batch_by_hand(data(), step);
        REQUIRE(batch.size == kBatch);
        REQUIRE(batch.labels == expected.labels);
        REQUIRE(batch.images == expected.images);
        loader.recycle(std::move(batch));
      }
      CHECK(loader.finished());
      error_text(ExitCode::kInternal, [&] { loader.next(); });
    }
  }
}

TEST_CASE_FIXTURE(LoaderFixture, "without augmentation the image stays where it is") {
  LoaderOptions options = options_with(1);
  options.augment = false;
  options.layout = Layout::kNhwc;
  Loader loader(data(), images_of, options);
  const Batch batch = loader.next();
  std::vector<float> first(kImageBytes);
  ImageTransform(Layout::kNhwc).apply(data().pixels(Split::kTrain, images_of(0)[0]), first);
  CHECK(std::vector<float>(batch.images.begin(), batch.images.begin() + kImageBytes) == first);
}

TEST_CASE_FIXTURE(LoaderFixture, "recycled memory is used again") {
  for (const std::int64_t threads : {0, 2}) {
    Loader loader(data(), images_of, options_with(threads, 2));
    std::set<const float*> places;
    while (!loader.finished()) {
      Batch batch = loader.next();
      places.insert(batch.images.data());
      loader.recycle(std::move(batch));
    }
    // Two slots, one batch in the caller's hands, one being claimed.
    CHECK(places.size() <= 4);
  }
}

TEST_CASE_FIXTURE(LoaderFixture, "no more than `prefetch` batches are made ahead") {
  std::atomic<std::int64_t> asked = 0;
  const auto counted = [&](std::int64_t step) {
    ++asked;
    return images_of(step);
  };
  Loader loader(data(), counted, options_with(2, 3));
  const auto settled = [&](std::int64_t expected) {
    for (int look = 0; look < 3000 && asked < expected; ++look)
      std::this_thread::sleep_for(10ms);
    std::this_thread::sleep_for(50ms);
    return asked.load();
  };
  CHECK(settled(3) == 3);
  loader.next();
  CHECK(settled(4) == 4);
}

TEST_CASE_FIXTURE(LoaderFixture, "an error comes out at its own step and the others continue") {
  const auto failing = [](std::int64_t step) {
    if (step == 2) throw std::runtime_error("step 2");
    return step == 4 ? std::vector<std::int64_t>{1'000'000} : images_of(step);
  };
  for (const std::int64_t threads : {0, 3}) {
    Loader loader(data(), failing, options_with(threads));
    loader.next();
    loader.next();
    CHECK_THROWS_WITH(loader.next(), "step 2");
    CHECK(loader.next().labels == batch_by_hand(data(), 3).labels);
    CHECK(contains(error_text(ExitCode::kInternal, [&] { loader.next(); }), "1000000"));
    CHECK(loader.next().labels == batch_by_hand(data(), 5).labels);
  }
}

TEST_CASE_FIXTURE(LoaderFixture, "a loader can be dropped at any moment, at once") {
  const auto begin = std::chrono::steady_clock::now();
  for (int taken = 0; taken < 40; ++taken) {
    Loader loader(data(), images_of, options_with(4, 1 + taken % 5));
    for (int step = 0; step < taken; ++step)
      loader.next();
  }
  const auto large = [](std::int64_t) { return std::vector<std::int64_t>(200'000, 0); };
  { const Loader loader(data(), large, options_with(2)); }
  CHECK(std::chrono::steady_clock::now() - begin < 15s);
}

TEST_CASE_FIXTURE(LoaderFixture, "an epoch without steps, and settings out of range") {
  LoaderOptions options = options_with(2);
  options.steps = 0;
  CHECK(Loader(data(), images_of, options).finished());
  error_text(ExitCode::kUsage, [&] { Loader(data(), images_of, options_with(-1)); });
  error_text(ExitCode::kUsage, [&] { Loader(data(), images_of, options_with(1, 0)); });
}

/// Red tells the column, green the row, blue is full: 4·x + 1, 4·y + 1, 255.
std::vector<std::byte> image_of_positions() {
  std::vector<std::byte> pixels(kImageBytes, std::byte{255});
  for (std::size_t y = 0; y < 32; ++y) {
    for (std::size_t x = 0; x < 32; ++x) {
      pixels[y * 32 + x] = static_cast<std::byte>(4 * x + 1);
      pixels[1024 + y * 32 + x] = static_cast<std::byte>(4 * y + 1);
    }
  }
  return pixels;
}

/// The raw values of one pixel of an output, found by undoing the normalization.
std::array<int, 3> pixel_of(const std::vector<float>& out, Layout layout, int x, int y) {
  std::array<int, 3> values{};
  for (std::size_t c = 0; c < 3; ++c) {
    const auto at = static_cast<std::size_t>(y * 32 + x);
    const float value = layout == Layout::kNchw ? out[c * 1024 + at] : out[at * 3 + c];
    values[c] = static_cast<int>(
        std::lround((static_cast<double>(value) * kStandardDeviation[c] + kMean[c]) * 255));
  }
  return values;
}

/// What stands at (x, y) after a crop with corner (left, top) of the padded image, then a flip.
std::array<int, 3> expected_pixel(const Placement& placement, int x, int y) {
  const int cropped_x = placement.flip ? 31 - x : x;
  const int source_x = cropped_x + placement.left - 4, source_y = y + placement.top - 4;
  if (source_x < 0 || source_x > 31 || source_y < 0 || source_y > 31) return {0, 0, 0};
  return {4 * source_x + 1, 4 * source_y + 1, 255};
}

void check_placement(Layout layout, const Placement& placement) {
  CAPTURE(placement.left);
  CAPTURE(placement.top);
  CAPTURE(placement.flip);
  std::vector<float> out(kImageBytes, NAN);
  ImageTransform(layout).apply(image_of_positions(), out, placement);
  for (int y = 0; y < 32; ++y) {
    for (int x = 0; x < 32; ++x) {
      if (pixel_of(out, layout, x, y) == expected_pixel(placement, x, y)) continue;
      FAIL("pixel ", x, ",", y, " is wrong");
    }
  }
}

TEST_CASE("every crop and flip moves every pixel to its place, in both layouts") {
  for (int left = 0; left <= 8; ++left) {
    for (int top = 0; top <= 8; ++top) {
      for (const bool flip : {false, true}) {
        check_placement(Layout::kNchw, {left, top, flip});
        check_placement(Layout::kNhwc, {left, top, flip});
      }
    }
  }
}

TEST_CASE("some corners, worked by hand") {
  std::vector<float> out(kImageBytes);
  const auto pixels = image_of_positions();
  const ImageTransform transform(Layout::kNchw);
  transform.apply(pixels, out, {0, 0, false});  // everything moves 4 right and 4 down
  CHECK(pixel_of(out, Layout::kNchw, 3, 4) == std::array{0, 0, 0});
  CHECK(pixel_of(out, Layout::kNchw, 4, 4) == std::array{1, 1, 255});
  CHECK(pixel_of(out, Layout::kNchw, 31, 31) == std::array{4 * 27 + 1, 4 * 27 + 1, 255});
  transform.apply(pixels, out, {8, 4, true});  // 4 left, then mirrored
  CHECK(pixel_of(out, Layout::kNchw, 3, 0) == std::array{0, 0, 0});
  CHECK(pixel_of(out, Layout::kNchw, 4, 0) == std::array{125, 1, 255});
  CHECK(pixel_of(out, Layout::kNchw, 31, 0) == std::array{17, 1, 255});
}

TEST_CASE("normalization is (pixel/255 - mean)/deviation of its channel") {
  std::vector<std::byte> pixels(kImageBytes, std::byte{0});
  pixels[1024] = pixels[2048] = std::byte{255};
  std::vector<float> out(kImageBytes);
  ImageTransform(Layout::kNchw).apply(pixels, out);
  CHECK(out[0] == doctest::Approx(-0.4914 / 0.2470));
  CHECK(out[1024] == doctest::Approx(0.5178 / 0.2435));
  CHECK(out[2048] == doctest::Approx(0.5535 / 0.2616));
  CHECK(out[2049] == doctest::Approx(-0.4465 / 0.2616));
}

TEST_CASE("the placement of an image depends on seed, epoch and image, and on nothing else") {
  const auto differing = [](auto&& other) {
    int count = 0;
    for (std::int64_t image = 0; image < 1000; ++image) {
      count += random_placement(1, 2, image) == other(image) ? 0 : 1;
    }
    return count;
  };
  CHECK(differing([](std::int64_t image) { return random_placement(1, 2, image); }) == 0);
  // Two independent placements agree once in 162.
  CHECK(differing([](std::int64_t image) { return random_placement(3, 2, image); }) > 950);
  CHECK(differing([](std::int64_t image) { return random_placement(1, 3, image); }) > 950);
  CHECK(differing([](std::int64_t image) { return random_placement(1, 2, image + 1); }) > 950);
}

TEST_CASE("all 162 placements come up equally often") {
  std::array<int, 162> counts{};
  for (std::int64_t image = 0; image < 162'000; ++image) {
    const Placement placement = random_placement(11, 0, image);
    REQUIRE(placement.left >= 0);
    REQUIRE(placement.top >= 0);
    REQUIRE(placement.left <= 8);
    REQUIRE(placement.top <= 8);
    ++counts[static_cast<std::size_t>((placement.top * 9 + placement.left) * 2 + placement.flip)];
  }
  // Chi-squared with 161 degrees of freedom: mean 161, standard deviation 18.
  double chi_squared = 0;
  for (const int count : counts)
    chi_squared += (count - 1000.0) * (count - 1000.0) / 1000.0;
  CHECK(chi_squared < 161 + 5 * 18);
}

TEST_CASE("an image of another size is refused") {
  std::vector<std::byte> pixels(kImageBytes);
  std::vector<float> out(kImageBytes - 1);
  error_text(ExitCode::kInternal, [&] { ImageTransform(Layout::kNchw).apply(pixels, out); });
}

}  // namespace
}  // namespace gradsync
