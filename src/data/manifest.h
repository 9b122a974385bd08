#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace gradsync {

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

}  // namespace gradsync
