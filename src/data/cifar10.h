// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace gradsync {

inline constexpr int kImageSide = 32;
inline constexpr std::size_t kImageBytes = 3072;   ///< planes R, G, B of 32×32
inline constexpr std::size_t kRecordBytes = 3073;  ///< one label byte before them
inline constexpr int kClasses = 10;
inline constexpr std::int64_t kOfficialRecords = 10'000;  ///< in each of the six files
inline constexpr std::array<const char*, 5> kTrainFiles = {"data_batch_1.bin", "data_batch_2.bin",
                                                           "data_batch_3.bin", "data_batch_4.bin",
                                                           "data_batch_5.bin"};
inline constexpr const char* kTestFile = "test_batch.bin";
/// The folder that the official archive holds.
inline constexpr const char* kArchiveFolder = "cifar-10-batches-bin";

enum class Split { kTrain, kTest };

struct FileDigest {
  std::string file;
  std::string sha256;
  std::int64_t records = 0;
};

/// What a data set is, for the run file.
struct DataDigest {
  std::string combined;  ///< SHA-256 of the lines "sha256  file" of all files in the order below
  std::vector<FileDigest> files;
  /// "CIFAR-10 (official)", "CIFAR-10 (its images, not the official files)", told by class counts
  /// and channel statistics, "synthetic (seed S)" or "unrecognized files in the format of
  /// CIFAR-10".
  std::string name;
};

/// CIFAR-10's binary files, or a synthetic set of the same format, mapped read-only: the ranks of a
/// node share one copy in the page cache.
///
/// Without a manifest each file has exactly 10,000 records. With one (gradsync-dataset.json, see
/// Manifest) each has as many as it says.
class Cifar10 {
 public:
  /// Opens the files in `folder` or in its sub-folder cifar-10-batches-bin, with the checks of
  /// check_files().
  explicit Cifar10(const std::filesystem::path& folder);

  /// Cheap: all files are there with exactly the right sizes. Reads no image.
  /// Throws Error kNoInput if the folder or a file is missing, kBadData if a size is wrong.
  static void check_files(const std::filesystem::path& folder);

  /// Full: every label is at most 9 and, where there is a manifest, the digests are as it says.
  /// Throws Error kBadData naming file, record, offset and value, or both digests.
  DataDigest verify() const;

  /// The folder the files lie in.
  const std::filesystem::path& folder() const { return folder_; }
  std::int64_t size(Split split) const;
  /// Throws Error kBadData if the label is above 9, kInternal if there is no such image.
  std::int64_t label(Split split, std::int64_t image) const;
  /// The 3072 bytes of an image. Throws Error kInternal if there is no such image.
  std::span<const std::byte> pixels(Split split, std::int64_t image) const;
  /// Images of each class.
  std::array<std::int64_t, kClasses> class_counts(Split split) const;

 private:
  struct Place {
    const MappedFile& file;
    std::int64_t record;
    std::span<const std::byte> bytes() const;
  };

  std::span<const MappedFile> files(Split split) const;
  Place place(Split split, std::int64_t image) const;

  std::filesystem::path folder_;
  std::vector<MappedFile> files_;  ///< five of training, one of test
};

/// Mean and standard deviation of the red, green and blue values of the training images, each
/// divided by 255.
struct ChannelStatistics {
  std::array<double, 3> mean{}, deviation{};
};

ChannelStatistics channel_statistics(const Cifar10& data);

/// Whether the statistics are those of CIFAR-10 to what an image loses by being encoded again. They
/// do not depend on the order of the images.
bool are_those_of_cifar10(const ChannelStatistics& statistics);

/// Whether the files hold the images of CIFAR-10, though maybe in another order or encoded again:
/// as many of each class, and their channel statistics. Reads all images.
bool has_cifar10_images(const Cifar10& data);

/// What a synthetic data set says about itself, in gradsync-dataset.json beside its files:
///   {"format": "gradsync-dataset/1", "seed": 1,
///    "files": {"data_batch_1.bin": {"records": 10000, "sha256": "…"}, …}}
struct Manifest {
  static constexpr const char* kFile = "gradsync-dataset.json";
  static constexpr const char* kFormat = "gradsync-dataset/1";

  struct File {
    std::int64_t records = 0;
    std::string sha256;
  };

  std::uint64_t seed = 0;
  std::map<std::string, File> files;
};

/// The manifest in `folder`, if there is one.
/// Throws Error kBadData if it cannot be understood or does not name all six files.
std::optional<Manifest> read_manifest(const std::filesystem::path& folder);

/// The manifest as JSON text.
std::string manifest_text(const Manifest& manifest);

inline constexpr std::int64_t kMostSyntheticImages = 10'000'000;

/// Writes a data set in CIFAR-10's binary format whose images a network can learn: five training
/// files that share `train_images` as evenly as possible, test_batch.bin, batches.meta.txt and the
/// manifest. Written beside `folder` and renamed when whole.
///
/// An image is a grating whose direction (5) and stripe width (2) define its class, both blurred
/// from image to image, mirrored or not, at a random phase and contrast, with a tint that leans a
/// little towards the class, a second grating that means nothing, and noise. Integer arithmetic
/// throughout: one seed gives the same bytes on every machine.
///
/// Throws Error kUsage if a count is not in 1 … kMostSyntheticImages, kCannotCreate if `folder`
/// exists.
void synthesize(const std::filesystem::path& folder, std::uint64_t seed, std::int64_t train_images,
                std::int64_t test_images);

/// One record (label byte and 3072 pixels) of the set above, into `record` (kRecordBytes bytes).
void synthesize_record(std::uint64_t seed, Split split, std::int64_t image,
                       std::span<std::byte> record);

}  // namespace gradsync
