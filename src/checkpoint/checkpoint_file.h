#pragma once

#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "checkpoint/safetensors.h"

namespace gradsync {

inline constexpr std::string_view kCheckpointFormat = "gradsync-checkpoint/1";

/// Writes one checkpoint: under a temporary name, with the digest of the whole, fsync, rename,
/// fsync of the folder. Whatever goes wrong, the name `target` stands for what it stood for before,
/// and nothing else remains.
class CheckpointWriter {
 public:
  /// Makes the temporary file and writes its front; a `format` in the metadata takes the place of
  /// kCheckpointFormat. Throws Error kCannotCreate or kInputOutput.
  CheckpointWriter(std::filesystem::path target, const std::vector<TensorInfo>& tensors,
                   TextMap metadata);

  /// The data of the tensors, in their order, in pieces of any size. Throws Error kInputOutput.
  void write(std::span<const std::byte> bytes);

  /// Requires all the data. Throws Error kInputOutput or kCannotCreate.
  void finish();

 private:
  std::filesystem::path target_;
  TemporaryFile temporary_;
  UniqueFd file_;
  Sha256 digest_;
  std::uint64_t digest_at_ = 0;
};

/// A checkpoint that is whole: its header makes sense and its SHA-256 is right.
class CheckpointFile {
 public:
  /// Throws Error kNoInput if it is missing, kBadData if it is cut, damaged or no checkpoint of
  /// ours, with the reason; kInputOutput if it cannot be read.
  explicit CheckpointFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const TextMap& metadata() const { return header_.metadata; }
  const std::vector<TensorPlace>& tensors() const { return header_.tensors; }
  /// The tensor of this name, or nothing.
  const TensorPlace* find(std::string_view name) const;
  std::span<const std::byte> bytes(const TensorPlace& tensor) const;

 private:
  MappedFile file_;
  SafetensorsHeader header_;
};

}  // namespace gradsync
