// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include <doctest/doctest.h>

#include "data/augment.h"
#include "data/cifar10.h"
#include "serial/data_files.h"
#include "serial/expect_error.h"
#include "serial/test_folder.h"

namespace gradsync {
namespace {

namespace fs = std::filesystem;

/// A small data set with a manifest: 3, 3, 3, 3, 4 training images and 5 test images.
struct SmallSet : TestFolder {
  SmallSet() { synthesize(data(), 1, 16, 5); }
  fs::path data() const { return path() / "data"; }
};

std::string data_error(ExitCode code, const fs::path& folder) {
  return error_text(code, [&] { Cifar10(folder).verify(); });
}

TEST_CASE("files of the official size are read as CIFAR-10 defines them") {
  const TestFolder folder;
  write_official_sizes(folder.path());
  const std::string record = random_records(1, 77);
  std::string text = read_text_file(folder / "data_batch_3.bin");
  text.replace(1234 * kRecordBytes, kRecordBytes, record);
  write_file_atomically(folder / "data_batch_3.bin", text);

  const Cifar10 data(folder.path());
  CHECK(data.size(Split::kTrain) == 50'000);
  CHECK(data.size(Split::kTest) == 10'000);
  CHECK(data.label(Split::kTrain, 21'234) == record[0]);
  const auto pixels = data.pixels(Split::kTrain, 21'234);
  REQUIRE(pixels.size() == kImageBytes);
  CHECK(std::memcmp(pixels.data(), record.data() + 1, kImageBytes) == 0);
  const auto counts = data.class_counts(Split::kTest);
  CHECK(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) == 10'000);
  const DataDigest digest = data.verify();
  CHECK(digest.name == "unrecognized files in the format of CIFAR-10");
  CHECK(digest.files.size() == 6);
}

TEST_CASE("images of CIFAR-10 are told by their statistics, whatever their order") {
  // Of the training images after a pass through JPEG; of noise; of CIFAR-10 with red and blue
  // exchanged.
  CHECK(are_those_of_cifar10({{0.49125, 0.48209, 0.44652}, {0.24523, 0.24278, 0.26063}}));
  CHECK_FALSE(are_those_of_cifar10({{0.5, 0.5, 0.5}, {0.2887, 0.2887, 0.2887}}));
  CHECK_FALSE(are_those_of_cifar10({{0.4465, 0.4822, 0.4914}, {0.2616, 0.2435, 0.2470}}));
  const TestFolder folder;
  write_official_sizes(folder.path());
  // All values are 85 there, a third of the brightest.
  const ChannelStatistics gray = channel_statistics(Cifar10(folder.path()));
  CHECK(gray.mean[1] == doctest::Approx(1.0 / 3));
  CHECK(gray.deviation[1] == doctest::Approx(0));
  std::string text = read_text_file(folder / "data_batch_1.bin");
  text.replace(1 + 1024, 1024, std::string(1024, '\xff'));  // green of the first image
  write_file_atomically(folder / "data_batch_1.bin", text);
  const ChannelStatistics one = channel_statistics(Cifar10(folder.path()));
  CHECK(one.mean[0] == doctest::Approx(1.0 / 3));
  CHECK(one.mean[1] == doctest::Approx(1.0 / 3 + 2.0 / 3 / 50'000).epsilon(1e-7));
  CHECK(one.deviation[1] == doctest::Approx(2.0 / 3 * std::sqrt(1.0 / 50'000)).epsilon(1e-4));
  CHECK_FALSE(has_cifar10_images(Cifar10(folder.path())));
}

TEST_CASE("a file one byte short, one byte long, or a whole record long is bad data") {
  const TestFolder folder;
  write_official_sizes(folder.path());
  const fs::path file = folder / "data_batch_1.bin";
  fs::resize_file(file, 30'729'999);
  const std::string shorter = data_error(ExitCode::kBadData, folder.path());
  CHECK(contains(shorter, file.string()));
  CHECK(contains(shorter, "1 bytes are missing"));
  fs::resize_file(file, 30'730'001);
  CHECK(contains(data_error(ExitCode::kBadData, folder.path()), "1 bytes too many"));
  fs::resize_file(file, 30'733'073);
  CHECK(contains(data_error(ExitCode::kBadData, folder.path()), "3073 bytes too many"));
  error_text(ExitCode::kBadData, [&] { Cifar10::check_files(folder.path()); });
}

TEST_CASE("a missing folder or file is named, with the command that makes one") {
  const std::string folder = data_error(ExitCode::kNoInput, "/nowhere/cifar");
  CHECK(contains(folder, "/nowhere/cifar"));
  CHECK(contains(folder, "config/data /nowhere/cifar "));
  const SmallSet set;
  fs::remove(set.data() / "data_batch_4.bin");
  const std::string file = data_error(ExitCode::kNoInput, set.data());
  CHECK(contains(file, "data_batch_4.bin"));
  CHECK(contains(file, "gradsync-dataset synthesize"));
}

TEST_CASE("another version of CIFAR-10 is named") {
  const SmallSet set;
  for (const auto& [file, version] :
       {std::pair("data_batch_1", "Python version"),
        std::pair("data_batch_1.mat", "MATLAB version"),
        std::pair("cifar-10-batches-py/data_batch_1", "Python version"),
        std::pair("cifar-10-batches-mat/data_batch_1.mat", "MATLAB version")}) {
    const fs::path folder = set.path() / version / fs::path(file).stem();
    fs::create_directories((folder / file).parent_path());
    std::ofstream(folder / file) << "x";
    CHECK(contains(data_error(ExitCode::kNoInput, folder), version));
    fs::remove_all(folder);
  }
}

TEST_CASE("the parent of cifar-10-batches-bin will do") {
  const SmallSet set;
  fs::rename(set.data(), set.path() / kArchiveFolder);
  CHECK(Cifar10(set.path()).folder() == set.path() / kArchiveFolder);
  Cifar10::check_files(set.path());
}

TEST_CASE("a label above 9 is named with file, record, offset and value") {
  const SmallSet set;
  set_byte(set.data() / "data_batch_2.bin", 2 * kRecordBytes, 200);
  const std::string text = data_error(ExitCode::kBadData, set.data());
  CHECK(contains(text, "data_batch_2.bin"));
  CHECK(contains(text, "record 2"));
  CHECK(contains(text, "offset 6146"));
  CHECK(contains(text, "label 200"));
  // Training and test images before it are not affected; the image itself is refused.
  const Cifar10 data(set.data());
  CHECK(data.label(Split::kTrain, 4) <= 9);
  error_text(ExitCode::kBadData, [&] { data.label(Split::kTrain, 5); });
}

TEST_CASE("a changed pixel is found through the manifest") {
  const SmallSet set;
  CHECK(Cifar10(set.data()).verify().name == "synthetic (seed 1)");
  const fs::path file = set.data() / kTestFile;
  const auto old = static_cast<unsigned char>(read_text_file(file)[100]);
  set_byte(file, 100, static_cast<unsigned char>(old ^ 1));
  const std::string text = data_error(ExitCode::kBadData, set.data());
  CHECK(contains(text, "test_batch.bin"));
  CHECK(contains(text, "SHA-256"));
}

TEST_CASE("a manifest's sizes are binding") {
  const SmallSet set;
  fs::resize_file(set.data() / kTestFile, 4 * kRecordBytes);
  CHECK(contains(data_error(ExitCode::kBadData, set.data()), "3073 bytes are missing"));
}

TEST_CASE("a manifest that makes no sense is bad data, not a crash") {
  const SmallSet set;
  for (const char* text : {"", "{", "[]", "{}", "{\"format\": \"other\"}",
                           "{\"format\": \"gradsync-dataset/1\", \"seed\": \"x\"}",
                           "{\"format\": \"gradsync-dataset/1\", \"seed\": 1.5}",
                           "{\"format\": \"gradsync-dataset/1\", \"seed\": 1, \"files\": {}}"}) {
    write_file_atomically(set.data() / Manifest::kFile, text);
    CHECK(contains(data_error(ExitCode::kBadData, set.data()), Manifest::kFile));
  }
}

TEST_CASE("a manifest's numbers are integers that can be held") {
  const SmallSet set;
  const std::string sound = read_text_file(set.data() / Manifest::kFile);
  for (const char* number : {"1e30", "3.5", "18446744073709551615", "\"3\""}) {
    std::string text = sound;
    const auto at = text.find("\"records\": 3");
    REQUIRE(at != std::string::npos);
    write_file_atomically(set.data() / Manifest::kFile,
                          text.replace(at, 12, std::string("\"records\": ") + number));
    CHECK(contains(data_error(ExitCode::kBadData, set.data()), "is no integer of 64 bits"));
  }
}

TEST_CASE("an image that is not there is an error, not another image") {
  const SmallSet set;
  const Cifar10 data(set.data());
  CHECK(data.size(Split::kTrain) == 16);
  for (const std::int64_t image : {-1, 16}) {
    error_text(ExitCode::kInternal, [&] { data.pixels(Split::kTrain, image); });
  }
}

TEST_CASE("the combined digest tells sets apart") {
  const SmallSet first, same;
  const TestFolder folder;
  synthesize(folder / "other", 2, 16, 5);
  const std::string digest = Cifar10(first.data()).verify().combined;
  CHECK(digest == Cifar10(same.data()).verify().combined);
  CHECK(digest != Cifar10(folder / "other").verify().combined);
}

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

TEST_CASE("what cannot be looked at is not called absent") {
  const TestFolder folder;
  std::filesystem::create_symlink("loop", folder / "loop");
  CHECK(contains(error_text(ExitCode::kNoInput, [&] { Cifar10(folder / "loop"); }),
                 "cannot look at"));
  write_file_atomically(folder / "file", "text");
  CHECK(contains(error_text(ExitCode::kNoInput, [&] { Cifar10(folder / "file"); }),
                 "it is no folder"));
  // Without its checksums a set would pass.
  std::filesystem::create_symlink(Manifest::kFile, folder / Manifest::kFile);
  CHECK_THROWS_AS(read_manifest(folder.path()), Error);
}

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
