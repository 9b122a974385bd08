#include "data/synthetic.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "data/manifest.h"
#include "data/staging.h"

namespace gradsync {
namespace {

namespace fs = std::filesystem;

void check_count(const char* option, std::int64_t images) {
  if (images >= 1 && images <= kMostSyntheticImages) return;
  throw Error(ExitCode::kUsage,
              fmt::format("{} {} is not in 1 to {}", option, images, kMostSyntheticImages));
}

/// Writes the records `first` … `first + count − 1` of a split.
Manifest::File write_records(const fs::path& path, std::uint64_t seed, Split split,
                             std::int64_t first, std::int64_t count) {
  constexpr std::int64_t kRecordsAtOnce = 256;
  UniqueFd file = create_file(path);
  Sha256 digest;
  std::vector<std::byte> buffer(kRecordsAtOnce * kRecordBytes);
  for (std::int64_t done = 0; done < count; done += kRecordsAtOnce) {
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
  StagedFolder staged(folder);
  Manifest manifest;
  manifest.seed = seed;
  constexpr std::int64_t kFiles = kTrainFiles.size();
  for (std::int64_t i = 0; i < kFiles; ++i) {
    const std::int64_t first = i * train_images / kFiles;
    const std::int64_t end = (i + 1) * train_images / kFiles;
    const std::string name = kTrainFiles[static_cast<std::size_t>(i)];
    manifest.files[name] =
        write_records(staged.path() / name, seed, Split::kTrain, first, end - first);
  }
  manifest.files[kTestFile] =
      write_records(staged.path() / kTestFile, seed, Split::kTest, 0, test_images);
  write_file_atomically(staged.path() / "batches.meta.txt", class_names());
  write_file_atomically(staged.path() / Manifest::kFile, manifest_text(manifest));
  staged.publish();
}

}  // namespace gradsync
