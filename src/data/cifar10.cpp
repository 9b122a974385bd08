// SPDX-License-Identifier: BSD-3-Clause
#include "data/cifar10.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json_number.h"
#include "base/parse.h"
#include "data/augment.h"

namespace gradsync {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int64_t kMostRecords = 1'000'000'000;

Manifest::File parse_file(const json& entry) {
  Manifest::File file{whole_number<std::int64_t>(entry.at("records")), entry.at("sha256")};
  if (file.records < 0 || file.records > kMostRecords) {
    throw Error(ExitCode::kBadData, fmt::format("records is {}", file.records));
  }
  return file;
}

Manifest parse(const json& document) {
  if (!document.is_object()) throw Error(ExitCode::kBadData, "it is not a JSON object");
  if (document.at("format") != Manifest::kFormat) {
    throw Error(ExitCode::kBadData, fmt::format("its format is not \"{}\"", Manifest::kFormat));
  }
  Manifest manifest;
  manifest.seed = whole_number<std::uint64_t>(document.at("seed"));
  for (const char* name : kTrainFiles) {
    manifest.files[name] = parse_file(document.at("files").at(name));
  }
  manifest.files[kTestFile] = parse_file(document.at("files").at(kTestFile));
  return manifest;
}

}  // namespace

std::optional<Manifest> read_manifest(const fs::path& folder) {
  const fs::path path = folder / Manifest::kFile;
  // One that is there and cannot be looked at is an error of reading it: it holds the checksums.
  std::error_code ignored;
  if (fs::status(path, ignored).type() == fs::file_type::not_found) return std::nullopt;
  try {
    return parse(parse_json(read_text_file(path)));
  } catch (const json::exception& error) {
    throw Error(ExitCode::kBadData, fmt::format("'{}': {}", path.string(), error.what()),
                "synthesize the data set again");
  } catch (const Error& error) {
    if (error.code() != ExitCode::kBadData) throw;
    throw Error(error.code(), fmt::format("'{}': {}", path.string(), error.what()),
                "synthesize the data set again");
  }
}

std::string manifest_text(const Manifest& manifest) {
  json document = {{"format", Manifest::kFormat}, {"seed", manifest.seed}};
  for (const auto& [name, file] : manifest.files) {
    document["files"][name] = {{"records", file.records}, {"sha256", file.sha256}};
  }
  return document.dump(2) + "\n";
}

namespace {

// SHA-256 of the files in the official archive (config/data), as listed in torchvision-ruby's
// cifar10.rb (github.com/ankane/torchvision-ruby).
constexpr std::array<std::string_view, 6> kOfficialSha256 = {
    "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
};

std::vector<std::string> file_names() {
  std::vector<std::string> names(kTrainFiles.begin(), kTrainFiles.end());
  names.emplace_back(kTestFile);
  return names;
}

// Never "remove the folder": it may be any folder that was named by mistake.
const std::string kMakeAnother =
    "name another folder, or make one with config/data NEW-FOLDER (CIFAR-10) or gradsync-dataset "
    "synthesize --to NEW-FOLDER";

std::string fix_for(const fs::path& folder) {
  return fmt::format("config/data {0} for CIFAR-10, or gradsync-dataset synthesize --to {0}",
                     shell_quoted(folder.string()));
}

/// That of the path, which may be absent. Throws Error kInputOutput if it cannot be looked at, and
/// kNoInput where no file can have that name.
fs::file_status status_of(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  const bool is_no_name =
      error == std::errc::too_many_symbolic_link_levels || error == std::errc::filename_too_long;
  if (error && status.type() != fs::file_type::not_found)
    throw Error(is_no_name ? ExitCode::kNoInput : ExitCode::kInputOutput,
                fmt::format("cannot look at '{}': {}", path.string(), error.message()),
                "check the permissions of its folders and its file system");
  return status;
}

/// The folder the files lie in, given it or its parent.
fs::path folder_with_files(const fs::path& folder) {
  std::error_code ignored;
  if (const fs::file_status status = status_of(folder); !fs::is_directory(status)) {
    throw Error(ExitCode::kNoInput,
                fmt::format("no data set in '{}': {}", folder.string(),
                            fs::exists(status) ? "it is no folder" : "no such folder"),
                fix_for(folder));
  }
  const fs::path inner = folder / kArchiveFolder;
  const bool is_parent =
      !fs::exists(folder / kTrainFiles[0], ignored) && fs::is_directory(inner, ignored);
  return is_parent ? inner : folder;
}

std::int64_t expected_records(const std::optional<Manifest>& manifest, const std::string& name) {
  return manifest ? manifest->files.at(name).records : kOfficialRecords;
}

/// "10 bytes are missing" or "3,073 bytes too many".
std::string size_difference(std::uintmax_t size, std::uintmax_t expected) {
  return size < expected ? fmt::format("{} bytes are missing", expected - size)
                         : fmt::format("{} bytes too many", size - expected);
}

void check_size(const fs::path& path, std::uintmax_t size, std::int64_t records) {
  const std::uintmax_t expected = static_cast<std::uintmax_t>(records) * kRecordBytes;
  if (size == expected) return;
  throw Error(ExitCode::kBadData,
              fmt::format("'{}' has {} bytes; {} records of {} bytes are {}: {}", path.string(),
                          size, records, kRecordBytes, expected, size_difference(size, expected)),
              kMakeAnother);
}

/// "Python" or "MATLAB" where the folder, or one in it, has CIFAR-10 in that form; else nothing.
std::string other_version(const fs::path& folder) {
  const auto holds = [&](const char* name) {
    std::error_code ignored;
    return fs::exists(folder / name, ignored);
  };
  if (holds("data_batch_1") || holds("cifar-10-batches-py")) return "Python";
  return holds("data_batch_1.mat") || holds("cifar-10-batches-mat") ? "MATLAB" : "";
}

void check_file(const fs::path& path, std::int64_t records) {
  const fs::file_status status = status_of(path);
  if (!fs::exists(status)) {
    const std::string version = other_version(path.parent_path());
    if (!version.empty())
      throw Error(ExitCode::kNoInput,
                  fmt::format("'{}' holds the {} version of CIFAR-10; gradsync reads the binary "
                              "version, '{}'",
                              path.parent_path().string(), version, path.filename().string()),
                  kMakeAnother);
    throw Error(ExitCode::kNoInput, fmt::format("no file '{}'", path.string()), kMakeAnother);
  }
  if (!fs::is_regular_file(status)) {
    throw Error(ExitCode::kBadData, fmt::format("'{}' is not a regular file", path.string()));
  }
  check_size(path, fs::file_size(path), records);
}

std::uint8_t label_byte(const MappedFile& file, std::int64_t record) {
  return std::to_integer<std::uint8_t>(
      file.bytes()[static_cast<std::size_t>(record) * kRecordBytes]);
}

std::int64_t records_in(const MappedFile& file) {
  return static_cast<std::int64_t>(file.bytes().size() / kRecordBytes);
}

[[noreturn]] void refuse_label(const MappedFile& file, std::int64_t record) {
  throw Error(
      ExitCode::kBadData,
      fmt::format("'{}': record {} (offset {}) has label {}; labels are 0 to {}",
                  file.path().string(), record, record * static_cast<std::int64_t>(kRecordBytes),
                  label_byte(file, record), kClasses - 1),
      kMakeAnother);
}

FileDigest digest_of(const MappedFile& file) {
  for (std::int64_t record = 0; record < records_in(file); ++record) {
    if (label_byte(file, record) >= kClasses) refuse_label(file, record);
  }
  Sha256 digest;
  digest.update(file.bytes());
  return {file.path().filename().string(), digest.hex(), records_in(file)};
}

void check_against(const Manifest& manifest, const std::vector<FileDigest>& files,
                   const fs::path& folder) {
  for (const FileDigest& file : files) {
    const std::string& stated = manifest.files.at(file.file).sha256;
    if (stated == file.sha256) continue;
    throw Error(ExitCode::kBadData,
                fmt::format("'{}' has SHA-256 {}; {} says {}", (folder / file.file).string(),
                            file.sha256, Manifest::kFile, stated),
                kMakeAnother);
  }
}

bool all_official(const std::vector<FileDigest>& files) {
  return std::ranges::equal(files, kOfficialSha256, {}, &FileDigest::sha256);
}

std::string combined_digest(const std::vector<FileDigest>& files) {
  Sha256 digest;
  for (const FileDigest& file : files) {
    digest.update(fmt::format("{}  {}\n", file.sha256, file.file));
  }
  return digest.hex();
}

std::string name_of(const Cifar10& data, const std::vector<FileDigest>& files,
                    const std::optional<Manifest>& manifest) {
  if (all_official(files)) return "CIFAR-10 (official)";
  if (manifest) return fmt::format("synthetic (seed {})", manifest->seed);
  return has_cifar10_images(data) ? "CIFAR-10 (its images, not the official files)"
                                  : "unrecognized files in the format of CIFAR-10";
}

}  // namespace

Cifar10::Cifar10(const fs::path& folder) {
  folder_ = folder_with_files(folder);
  check_files(folder_);
  const std::optional<Manifest> manifest = read_manifest(folder_);
  for (const std::string& name : file_names()) {
    files_.emplace_back(folder_ / name);
    check_size(folder_ / name, files_.back().bytes().size(), expected_records(manifest, name));
  }
}

void Cifar10::check_files(const fs::path& folder) {
  const fs::path inner = folder_with_files(folder);
  const std::optional<Manifest> manifest = read_manifest(inner);
  for (const std::string& name : file_names()) {
    check_file(inner / name, expected_records(manifest, name));
  }
}

DataDigest Cifar10::verify() const {
  DataDigest digest;
  for (const MappedFile& file : files_)
    digest.files.push_back(digest_of(file));
  const std::optional<Manifest> manifest = read_manifest(folder_);
  if (manifest) check_against(*manifest, digest.files, folder_);
  digest.combined = combined_digest(digest.files);
  digest.name = name_of(*this, digest.files, manifest);
  return digest;
}

std::span<const std::byte> Cifar10::Place::bytes() const {
  return file.bytes().subspan(static_cast<std::size_t>(record) * kRecordBytes, kRecordBytes);
}

std::span<const MappedFile> Cifar10::files(Split split) const {
  const std::span<const MappedFile> all(files_);
  return split == Split::kTrain ? all.first(kTrainFiles.size()) : all.subspan(kTrainFiles.size());
}

Cifar10::Place Cifar10::place(Split split, std::int64_t image) const {
  std::int64_t record = image;
  for (const MappedFile& file : files(split)) {
    if (record >= 0 && record < records_in(file)) return {file, record};
    record -= records_in(file);
  }
  throw Error(ExitCode::kInternal, fmt::format("image {} of {}", image, size(split)));
}

std::int64_t Cifar10::size(Split split) const {
  std::int64_t records = 0;
  for (const MappedFile& file : files(split))
    records += records_in(file);
  return records;
}

std::int64_t Cifar10::label(Split split, std::int64_t image) const {
  const Place found = place(split, image);
  const std::uint8_t label = label_byte(found.file, found.record);
  if (label >= kClasses) refuse_label(found.file, found.record);
  return label;
}

std::span<const std::byte> Cifar10::pixels(Split split, std::int64_t image) const {
  return place(split, image).bytes().subspan(1);
}

std::array<std::int64_t, kClasses> Cifar10::class_counts(Split split) const {
  std::array<std::int64_t, kClasses> counts{};
  for (std::int64_t image = 0; image < size(split); ++image) {
    ++counts[static_cast<std::size_t>(label(split, image))];
  }
  return counts;
}

namespace {

constexpr std::int64_t kTrainOfClass = 5'000, kTestOfClass = 1'000;
constexpr std::size_t kChannelBytes = kImageBytes / 3;

// One pass through JPEG changes those of CIFAR-10 by up to 0.0002 and 0.0018.
constexpr double kMeanTolerance = 0.001, kDeviationTolerance = 0.004;

struct Sums {
  std::uint64_t values = 0, squares = 0;
};

void add(std::span<const std::byte> channel, Sums& sums) {
  std::uint64_t values = 0, squares = 0;
  for (const std::byte byte : channel) {
    const auto value = std::to_integer<std::uint64_t>(byte);
    values += value;
    squares += value * value;
  }
  sums.values += values;
  sums.squares += squares;
}

bool all_are(const std::array<std::int64_t, kClasses>& counts, std::int64_t count) {
  return std::ranges::all_of(counts, [&](std::int64_t one) { return one == count; });
}

}  // namespace

ChannelStatistics channel_statistics(const Cifar10& data) {
  std::array<Sums, 3> sums{};
  const std::int64_t images = data.size(Split::kTrain);
  for (std::int64_t image = 0; image < images; ++image)
    for (std::size_t channel = 0; channel < 3; ++channel)
      add(data.pixels(Split::kTrain, image).subspan(channel * kChannelBytes, kChannelBytes),
          sums[channel]);
  ChannelStatistics statistics;
  const double count = static_cast<double>(images) * kChannelBytes;
  for (std::size_t channel = 0; channel < 3; ++channel) {
    const double mean = static_cast<double>(sums[channel].values) / count;
    const double square = static_cast<double>(sums[channel].squares) / count;
    statistics.mean[channel] = mean / 255;
    statistics.deviation[channel] = std::sqrt(std::max(0.0, square - mean * mean)) / 255;
  }
  return statistics;
}

bool are_those_of_cifar10(const ChannelStatistics& statistics) {
  for (std::size_t channel = 0; channel < 3; ++channel)
    if (!(std::abs(statistics.mean[channel] - kMean[channel]) <= kMeanTolerance) ||
        !(std::abs(statistics.deviation[channel] - kStandardDeviation[channel]) <=
          kDeviationTolerance))
      return false;
  return true;
}

bool has_cifar10_images(const Cifar10& data) {
  return all_are(data.class_counts(Split::kTrain), kTrainOfClass) &&
         all_are(data.class_counts(Split::kTest), kTestOfClass) &&
         are_those_of_cifar10(channel_statistics(data));
}

}  // namespace gradsync
