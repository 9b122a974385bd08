// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <string>

#include "base/file.h"
#include "data/cifar10.h"
#include "stats/random.h"

namespace gradsync {

/// `records` records with valid labels and pseudo-random pixels.
inline std::string random_records(std::int64_t records, std::uint64_t seed) {
  std::string text(static_cast<std::size_t>(records) * kRecordBytes, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::uint64_t random = splitmix64(seed + i);
    text[i] = static_cast<char>(i % kRecordBytes == 0 ? below(random, kClasses) : random & 0xFF);
  }
  return text;
}

/// `records` records with valid labels and even pixels, which pack fast.
inline std::string plain_records(std::int64_t records) {
  std::string text(static_cast<std::size_t>(records) * kRecordBytes, '\x55');
  for (std::int64_t i = 0; i < records; ++i) {
    text[static_cast<std::size_t>(i) * kRecordBytes] = static_cast<char>(i * i % kClasses);
  }
  return text;
}

/// Six files of the official size in `folder`. All but the first are links to one file.
inline void write_official_sizes(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  fs::create_directories(folder);
  const std::string text = plain_records(kOfficialRecords);
  write_file_atomically(folder / kTrainFiles[0], text);
  write_file_atomically(folder / kTestFile, text);
  for (std::size_t i = 1; i < kTrainFiles.size(); ++i) {
    fs::create_hard_link(folder / kTestFile, folder / kTrainFiles[i]);
  }
}

/// Changes one byte of a file.
inline void set_byte(const std::filesystem::path& path, std::size_t offset, unsigned char value) {
  std::string text = read_text_file(path);
  text.at(offset) = static_cast<char>(value);
  write_file_atomically(path, text);
}

}  // namespace gradsync
