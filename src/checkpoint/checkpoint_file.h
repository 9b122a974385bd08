// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/hash.h"

/// The safetensors layout, which any Python tool opens:
///
///   u64 n (little-endian) · n bytes JSON · the tensors, one behind the other, row-major
///
/// The JSON names each tensor with dtype, shape and the bytes it takes of the data; its
/// `__metadata__` holds texts. Ours has one more rule: the text `sha256` is the SHA-256 of the
/// whole file, computed with its own 64 digits as zeros.
namespace gradsync {

inline constexpr std::string_view kDigestKey = "sha256";
inline constexpr std::size_t kDigestDigits = 64;
/// Longer headers are refused before memory is taken, as by the safetensors library.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

struct TensorInfo {
  std::string name;
  std::string dtype;  ///< "F32", "F64", "I64"; of buffers and quantized networks any of dtype_bytes
  std::vector<std::int64_t> shape;
};

struct TensorPlace {
  TensorInfo info;
  std::uint64_t begin = 0, end = 0;  ///< bytes of the file
};

using TextMap = std::map<std::string, std::string>;

/// What the front of a file says.
struct SafetensorsHeader {
  TextMap metadata;
  std::vector<TensorPlace> tensors;  ///< in the order of their data, without gaps
  std::uint64_t digest_at = 0;       ///< byte of the file where the digits of `sha256` begin
};

/// Bytes of one value. Throws Error kBadData for a dtype that checkpoints do not hold.
std::uint64_t dtype_bytes(std::string_view dtype);

/// Bytes of a tensor. Throws Error kBadData for a negative size or more than 2^62 bytes.
std::uint64_t tensor_bytes(const TensorInfo& info);

/// The front of a file with these tensors in this order: length, JSON with 64 zeros as its digest,
/// spaces up to a multiple of 8 bytes. Names must be unique.
std::string safetensors_front(const std::vector<TensorInfo>& tensors, TextMap metadata);

/// Reads the front of a file and checks that it describes the file to its last byte: known types,
/// shapes that fit their bytes, no gap, no overlap, one digest. Takes memory in proportion to the
/// header only. Throws Error kBadData with the reason; what the digest vouches for is not read.
SafetensorsHeader parse_safetensors(std::span<const std::byte> file);

/// SHA-256 of a whole file with the digits at `digest_at` taken as zeros.
std::string safetensors_digest(std::span<const std::byte> file, std::uint64_t digest_at);

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
