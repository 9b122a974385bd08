// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace gradsync {

/// CRC-32C (Castagnoli, polynomial 0x1EDC6F41, RFC 3720 appendix B.4) of `bytes`.
/// `previous` is the checksum of what came before, so that
/// crc32c(b, crc32c(a)) == crc32c(a followed by b). Uses SSE4.2 where the processor has it.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous = 0);

/// crc32c() by table lookup, on any processor.
std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t previous = 0);

/// Two lower-case digits a byte.
std::string hex_digits(std::span<const unsigned char> bytes);

/// SHA-256 (FIPS 180-4) of what `update` was given, in pieces of any size.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  /// 64 lower-case hex digits. Ends the computation: nothing may be added afterwards.
  std::string hex();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

/// SHA-256 of a file's content. Throws Error kNoInput if it is missing, kInputOutput if it cannot
/// be read.
std::string sha256_file(const std::filesystem::path& path);

}  // namespace gradsync
