// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/process.h"
#include "data/cifar10.h"
#include "stats/random.h"

namespace gradsync {

namespace {

// Angles are fractions of a turn in 32 bits, so that they wrap by themselves.
constexpr double kTurn = 4294967296.0;
constexpr int kSineBits = 10;
constexpr int kSineScale = 4096;

constexpr std::int64_t turns(double fraction) {
  return static_cast<std::int64_t>(fraction * kTurn);
}

// What makes the task neither trivial nor hopeless; found by training a LeNet and a linear
// classifier on the result.
constexpr int kDirections = 5;
constexpr std::array<std::int64_t, 2> kStripesPerPixel = {turns(0.10), turns(0.17)};
constexpr std::int64_t kDirectionStep = turns(0.25) / (kDirections - 1);
constexpr std::int64_t kDirectionBlur = turns(0.024);  // either way
constexpr std::int64_t kFrequencyBlur = turns(0.025);  // stripes a pixel, either way
constexpr std::int64_t kLeastContrast = 12, kMostContrast = 48;
constexpr std::int64_t kMostDistraction = 30;
constexpr std::int64_t kBrightnessBlur = 30, kTintBlur = 24, kClassTint = 12;
constexpr int kNoise = 40;

using Plane = std::array<int, kImageSide * kImageSide>;

/// SplitMix64's sequence from one key.
class Draws {
 public:
  explicit Draws(std::uint64_t key) : state_(key) {}
  std::uint64_t bits() { return splitmix64(state_ += 0x9E3779B97F4A7C15U); }
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low +
           static_cast<std::int64_t>(below(bits(), static_cast<std::uint64_t>(high - low + 1)));
  }
  std::int64_t around(std::int64_t middle, std::int64_t blur) {
    return between(middle - blur, middle + blur);
  }

 private:
  std::uint64_t state_;
};

/// sin of `angle` times kSineScale.
int sine(std::uint32_t angle) {
  static const auto table = [] {
    std::array<std::int16_t, 1 << kSineBits> values{};
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double radians = 2 * std::numbers::pi * static_cast<double>(i) / values.size();
      values[i] = static_cast<std::int16_t>(std::lround(kSineScale * std::sin(radians)));
    }
    return values;
  }();
  return table[angle >> (32 - kSineBits)];
}

/// Adds amplitude · sin(2π(frequency · (x cos d + y sin d) + phase)) to `plane`, times kSineScale.
void add_grating(Plane& plane, std::int64_t direction, std::int64_t frequency, std::int64_t phase,
                 std::int64_t amplitude) {
  const auto angle = static_cast<std::uint32_t>(direction);
  const std::int64_t along_x = frequency * sine(angle + (1U << 30)) / kSineScale;
  const std::int64_t along_y = frequency * sine(angle) / kSineScale;
  for (int y = 0; y < kImageSide; ++y) {
    auto at = static_cast<std::uint32_t>(phase + y * along_y);
    for (int x = 0; x < kImageSide; ++x) {
      plane[static_cast<std::size_t>(y * kImageSide + x)] += static_cast<int>(amplitude) * sine(at);
      at += static_cast<std::uint32_t>(along_x);
    }
  }
}

void write_plane(const Plane& pattern, std::int64_t base, std::int64_t tint_percent, Draws& draws,
                 std::span<std::byte> out) {
  for (std::size_t i = 0; i < pattern.size(); i += 8) {
    std::uint64_t bits = draws.bits();
    for (std::size_t j = i; j < i + 8; ++j, bits >>= 8) {
      const int noise = (static_cast<int>(bits & 0xFF) - 128) * kNoise / 128;
      const int value = static_cast<int>(base) + noise +
                        pattern[j] / kSineScale * static_cast<int>(tint_percent) / 100;
      out[j] = static_cast<std::byte>(std::clamp(value, 0, 255));
    }
  }
}

}  // namespace

void synthesize_record(std::uint64_t seed, Split split, std::int64_t image,
                       std::span<std::byte> record) {
  Draws draws(mix(seed, stream::kSynthetic, split == Split::kTrain ? 0 : 1,
                  static_cast<std::uint64_t>(image)));
  const std::int64_t label = draws.between(0, kClasses - 1);
  record[0] = static_cast<std::byte>(label);

  // Half of the images lean the other way: a class is its own mirror image, as a horse or a ship
  // is, so that flipping as augmentation keeps the label true.
  const std::int64_t mirror = draws.between(0, 1) == 0 ? 1 : -1;
  const std::int64_t middle = kDirectionStep * (label % kDirections);
  const std::int64_t stripes = kStripesPerPixel[static_cast<std::size_t>(label / kDirections)];
  const std::int64_t anywhere = turns(1) - 1;
  Plane pattern{};
  const std::int64_t direction = mirror * draws.around(middle, kDirectionBlur);
  const std::int64_t frequency = draws.around(stripes, kFrequencyBlur);
  const std::int64_t phase = draws.between(0, anywhere);
  add_grating(pattern, direction, frequency, phase, draws.between(kLeastContrast, kMostContrast));
  const std::int64_t other_direction = draws.between(0, anywhere);
  const std::int64_t other_frequency = draws.between(turns(0.04), turns(0.25));
  const std::int64_t other_phase = draws.between(0, anywhere);
  add_grating(pattern, other_direction, other_frequency, other_phase,
              draws.between(0, kMostDistraction));

  const std::int64_t brightness = draws.around(120, kBrightnessBlur);
  for (std::int64_t channel = 0; channel < 3; ++channel) {
    // Each class leans to its own point of the color circle.
    const std::int64_t hue = label * turns(0.1) + channel * turns(1.0 / 3.0);
    const std::int64_t lean = kClassTint * sine(static_cast<std::uint32_t>(hue)) / kSineScale;
    const std::int64_t base = draws.around(brightness + lean, kTintBlur);
    const std::int64_t tint_percent = draws.between(50, 100);
    write_plane(
        pattern, base, tint_percent, draws,
        record.subspan(1 + static_cast<std::size_t>(channel) * pattern.size(), pattern.size()));
  }
}

namespace fs = std::filesystem;

namespace {

/// `path` without a slash at its end, so that names beside it can be made from it.
fs::path without_trailing_slash(const fs::path& path) {
  const fs::path normal = path.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

void require_absent(const fs::path& target) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(target, ignored))) return;
  throw Error(ExitCode::kCannotCreate,
              fmt::format("'{}' exists already; it was not changed", target.string()),
              "choose another --to, or remove that folder first");
}

/// A folder that appears whole or not at all: it is filled under another name beside its place,
/// then renamed. If it goes before `publish`, what was written is removed.
class StagedFolder {
 public:
  /// Makes the folder to be filled, and the folders above it where they are missing.
  /// Throws Error kCannotCreate if `target` exists or nothing can be made there.
  explicit StagedFolder(const fs::path& target) : target_(without_trailing_slash(target)) {
    require_absent(target_);
    temporary_ = target_.string() + ".partial-" + random_suffix();
    std::error_code error;
    fs::create_directories(temporary_, error);
    if (error)
      throw Error(
          ExitCode::kCannotCreate,
          fmt::format("cannot make the folder '{}': {}", temporary_.string(), error.message()),
          "choose another --to");
  }
  ~StagedFolder() {
    std::error_code ignored;
    if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
  }
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  /// Where to write.
  const fs::path& path() const { return temporary_; }
  /// Gives the folder its name. Throws Error kCannotCreate if something has that name by now.
  void publish() {
    sync_folder(temporary_);
    require_absent(target_);
    if (std::rename(temporary_.c_str(), target_.c_str()) != 0)
      throw Error(creation_failure(), fmt::format("cannot rename the finished folder to '{}': {}",
                                                  target_.string(), errno_text()));
    temporary_.clear();
    sync_folder(folder_of(target_));
  }

 private:
  fs::path target_, temporary_;
};

void check_count(const char* option, std::int64_t images) {
  if (images >= 1 && images <= kMostSyntheticImages) return;
  throw Error(ExitCode::kUsage,
              fmt::format("{} {} is not in 1 to {}", option, images, kMostSyntheticImages));
}

/// Writes the records `first` … `first + count − 1` of a split.
Manifest::File write_records(const fs::path& path, std::uint64_t seed, Split split,
                             std::int64_t first, std::int64_t count, const StopSignals& stop) {
  constexpr std::int64_t kRecordsAtOnce = 256;
  UniqueFd file = create_file(path);
  Sha256 digest;
  std::vector<std::byte> buffer(kRecordsAtOnce * kRecordBytes);
  for (std::int64_t done = 0; done < count; done += kRecordsAtOnce) {
    if (stop.received() != 0)
      throw Error(ExitCode::kStoppedEarly,
                  fmt::format("stopped by signal {}; nothing is left", stop.received()),
                  "run the same command again");
    const std::int64_t now = std::min(kRecordsAtOnce, count - done);
    const auto bytes = std::span(buffer).first(static_cast<std::size_t>(now) * kRecordBytes);
    for (std::int64_t i = 0; i < now; ++i) {
      synthesize_record(seed, split, first + done + i,
                        bytes.subspan(static_cast<std::size_t>(i) * kRecordBytes, kRecordBytes));
    }
    digest.update(bytes);
    write_all(file.get(), bytes, path);
  }
  close_file(std::move(file), path);
  return {count, digest.hex()};
}

std::string class_names() {
  std::string names;
  for (int label = 0; label < kClasses; ++label)
    names += fmt::format("grating-{}\n", label);
  return names;
}

}  // namespace

void synthesize(const fs::path& folder, std::uint64_t seed, std::int64_t train_images,
                std::int64_t test_images) {
  check_count("--train", train_images);
  check_count("--test", test_images);
  const StopSignals stop({SIGINT, SIGTERM, SIGHUP});
  StagedFolder staged(folder);
  Manifest manifest;
  manifest.seed = seed;
  constexpr std::int64_t kFiles = kTrainFiles.size();
  for (std::int64_t i = 0; i < kFiles; ++i) {
    const std::int64_t first = i * train_images / kFiles;
    const std::int64_t end = (i + 1) * train_images / kFiles;
    const std::string name = kTrainFiles[static_cast<std::size_t>(i)];
    manifest.files[name] =
        write_records(staged.path() / name, seed, Split::kTrain, first, end - first, stop);
  }
  manifest.files[kTestFile] =
      write_records(staged.path() / kTestFile, seed, Split::kTest, 0, test_images, stop);
  write_file_atomically(staged.path() / "batches.meta.txt", class_names());
  write_file_atomically(staged.path() / Manifest::kFile, manifest_text(manifest));
  staged.publish();
}

}  // namespace gradsync
