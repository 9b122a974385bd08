// SPDX-License-Identifier: BSD-3-Clause
#include "base/hash.h"

#include <array>
#include <cstring>
#include <vector>

#include <boost/crc.hpp>
#include <openssl/evp.h>

#include "base/error.h"
#include "base/file.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace gradsync {
namespace {

std::uint32_t with_bits_reversed(std::uint32_t value) {
  std::uint32_t reversed = 0;
  for (int bit = 0; bit < 32; ++bit)
    reversed = (reversed << 1) | ((value >> bit) & 1U);
  return reversed;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t crc32c_sse42(std::span<const std::byte> bytes,
                                                             std::uint32_t previous) {
  std::uint64_t state = ~previous;
  while (bytes.size() >= sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    state = _mm_crc32_u64(state, word);
    bytes = bytes.subspan(sizeof word);
  }
  auto tail = static_cast<std::uint32_t>(state);
  for (const std::byte byte : bytes)
    tail = _mm_crc32_u8(tail, std::to_integer<unsigned char>(byte));
  return ~tail;
}
#endif

void require_openssl(bool succeeded) {
  if (!succeeded) throw Error(ExitCode::kInternal, "SHA-256: OpenSSL refused the operation");
}

}  // namespace

std::string hex_digits(std::span<const unsigned char> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15U];
  }
  return text;
}

std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t previous) {
  // Boost takes the register's start value unreflected and before the final inversion.
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc(
      with_bits_reversed(~previous));
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return crc32c_sse42(bytes, previous);
#endif
  return crc32c_portable(bytes, previous);
}

struct Sha256::Context {
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> digest{EVP_MD_CTX_new(), EVP_MD_CTX_free};
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  require_openssl(context_->digest != nullptr);
  require_openssl(EVP_DigestInit_ex(context_->digest.get(), EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  require_openssl(EVP_DigestUpdate(context_->digest.get(), bytes.data(), bytes.size()) == 1);
}

void Sha256::update(std::string_view text) {
  update(std::as_bytes(std::span(text)));
}

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned int length = 0;
  require_openssl(EVP_DigestFinal_ex(context_->digest.get(), bytes.data(), &length) == 1);
  return hex_digits(std::span(bytes).first(length));
}

std::string sha256_file(const std::filesystem::path& path) {
  const UniqueFd file = open_for_reading(path);
  Sha256 digest;
  std::vector<std::byte> buffer(1 << 20);
  while (const std::size_t count = read_some(file.get(), buffer, path)) {
    digest.update(std::span(buffer).first(count));
  }
  return digest.hex();
}

}  // namespace gradsync
