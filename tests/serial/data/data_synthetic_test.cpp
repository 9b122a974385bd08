#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include <doctest/doctest.h>

#include "data/augment.h"
#include "data/synthetic.h"
#include "serial/expect_error.h"
#include "serial/test_folder.h"

namespace gradsync {
namespace {

namespace fs = std::filesystem;

TEST_CASE("a synthetic set has the format and as many images as asked, evenly split") {
  const TestFolder folder;
  synthesize(folder / "a", 3, 1003, 7);
  const Cifar10 data(folder / "a");
  CHECK(data.size(Split::kTrain) == 1003);
  CHECK(data.size(Split::kTest) == 7);
  const DataDigest digest = data.verify();
  CHECK(digest.name == "synthetic (seed 3)");
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(std::abs(digest.files[i].records - 200) <= 1);
  }
  for (const std::int64_t count : data.class_counts(Split::kTrain))
    CHECK(count > 60);
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("one seed gives the same bytes, another seed other images") {
  const TestFolder folder;
  synthesize(folder / "a", 1, 20, 20);
  synthesize(folder / "b", 1, 20, 20);
  synthesize(folder / "c", 2, 20, 20);
  const auto digest = [&](const char* name) { return Cifar10(folder / name).verify(); };
  CHECK(digest("a").combined == digest("b").combined);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(digest("a").files[i].sha256 != digest("c").files[i].sha256);
  }
}

TEST_CASE("an image does not depend on how many there are; training and test images differ") {
  const TestFolder folder;
  synthesize(folder / "few", 1, 10, 10);
  synthesize(folder / "many", 1, 100, 10);
  const Cifar10 few(folder / "few"), many(folder / "many");
  for (std::int64_t i = 0; i < 10; ++i) {
    CHECK(std::ranges::equal(few.pixels(Split::kTrain, i), many.pixels(Split::kTrain, i)));
    CHECK_FALSE(std::ranges::equal(few.pixels(Split::kTrain, i), few.pixels(Split::kTest, i)));
  }
}

TEST_CASE("an existing folder is refused and not touched") {
  const TestFolder folder;
  const std::string text =
      error_text(ExitCode::kCannotCreate, [&] { synthesize(folder.path(), 1, 10, 10); });
  CHECK(contains(text, folder.path().string()));
  CHECK(folder.entries() == 0);
  write_file_atomically(folder / "file", "kept");
  error_text(ExitCode::kCannotCreate, [&] { synthesize(folder / "file", 1, 10, 10); });
  CHECK(read_text_file(folder / "file") == "kept");
}

TEST_CASE("no images, too many images, or a place that cannot be") {
  const TestFolder folder;
  error_text(ExitCode::kUsage, [&] { synthesize(folder / "a", 1, 0, 1); });
  error_text(ExitCode::kUsage, [&] { synthesize(folder / "a", 1, 1, kMostSyntheticImages + 1); });
  write_file_atomically(folder / "file", "");
  error_text(ExitCode::kCannotCreate, [&] { synthesize(folder / "file/a", 1, 1, 1); });
  CHECK(folder.entries() == 1);
}

TEST_CASE("a slash at the end of the folder's name changes nothing") {
  const TestFolder folder;
  synthesize(folder / "deep/er/", 1, 1, 1);
  CHECK(Cifar10(folder / "deep/er").size(Split::kTrain) == 1);
}

/// Softmax regression on normalized pixels: ten weights a pixel and a bias.
class LinearClassifier {
 public:
  void step(std::span<const float> image, std::int64_t label, float rate) {
    std::array<double, kClasses> chance = scores(image);
    const double highest = *std::ranges::max_element(chance);
    double sum = 0;
    for (double& value : chance)
      sum += value = std::exp(value - highest);
    for (std::size_t c = 0; c < chance.size(); ++c) {
      const bool right = static_cast<std::int64_t>(c) == label;
      const auto gradient = static_cast<float>(chance[c] / sum - (right ? 1 : 0));
      for (std::size_t i = 0; i < kImageBytes; ++i)
        weights_[c][i] -= rate * gradient * image[i];
      bias_[c] -= rate * gradient;
    }
  }
  std::int64_t guess(std::span<const float> image) const {
    const auto values = scores(image);
    return std::ranges::max_element(values) - values.begin();
  }

 private:
  std::array<double, kClasses> scores(std::span<const float> image) const {
    std::array<double, kClasses> values{};
    for (std::size_t c = 0; c < values.size(); ++c) {
      float sum = bias_[c];
      for (std::size_t i = 0; i < kImageBytes; ++i)
        sum += weights_[c][i] * image[i];
      values[c] = sum;
    }
    return values;
  }

  std::array<std::array<float, kImageBytes>, kClasses> weights_{};
  std::array<float, kClasses> bias_{};
};

TEST_CASE("a linear classifier learns something, and far from everything") {
  const TestFolder folder;
  synthesize(folder / "data", 1, 4000, 1000);
  const Cifar10 data(folder / "data");
  const ImageTransform transform(Layout::kNchw);
  std::vector<float> image(kImageBytes);
  LinearClassifier classifier;
  for (int epoch = 0; epoch < 4; ++epoch) {
    for (std::int64_t i = 0; i < data.size(Split::kTrain); ++i) {
      transform.apply(data.pixels(Split::kTrain, i), image);
      classifier.step(image, data.label(Split::kTrain, i), 2e-4F);
    }
  }
  int right = 0;
  for (std::int64_t i = 0; i < data.size(Split::kTest); ++i) {
    transform.apply(data.pixels(Split::kTest, i), image);
    right += classifier.guess(image) == data.label(Split::kTest, i) ? 1 : 0;
  }
  MESSAGE("a linear classifier gets ", right, " of 1000 test images right");
  CHECK(right > 120);
  CHECK(right < 600);
}

}  // namespace
}  // namespace gradsync
