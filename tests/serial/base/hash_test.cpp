// SPDX-License-Identifier: BSD-3-Clause
#include "base/hash.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "base/numbers.h"
#include "serial/expect_error.h"
#include "serial/test_folder.h"

namespace gradsync {
namespace {

std::string sha256(const std::string& text) {
  Sha256 digest;
  digest.update(text);
  return digest.hex();
}

// Examples published by NIST with FIPS 180.
constexpr const char* kOfAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr const char* kOfMillionA =
    "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";

TEST_CASE("SHA-256 gives the published values") {
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == kOfAbc);
  CHECK(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256(std::string(1'000'000, 'a')) == kOfMillionA);
}

TEST_CASE("SHA-256 does not depend on the pieces") {
  Sha256 digest;
  digest.update("a");
  digest.update("");
  digest.update("bc");
  CHECK(digest.hex() == kOfAbc);
}

TEST_CASE("SHA-256 of a file longer than the read buffer") {
  const TestFolder folder;
  const std::string text(3 * (1 << 20) + 17, 'x');
  write_file_atomically(folder / "million", std::string(1'000'000, 'a'));
  write_file_atomically(folder / "long", text);
  CHECK(sha256_file(folder / "million") == kOfMillionA);
  CHECK(sha256_file(folder / "long") == sha256(text));
}

TEST_CASE("SHA-256 of a missing file is missing input that names it") {
  CHECK(contains(error_text(ExitCode::kNoInput, [] { sha256_file("/nowhere/file"); }),
                 "/nowhere/file"));
}

std::span<const std::byte> as_bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// Values of RFC 3720, appendix B.4, and the check value of the CRC catalog.
struct Vector {
  std::string text;
  std::uint32_t crc;
};

std::vector<Vector> known_vectors() {
  std::string rising, falling;
  for (int i = 0; i < 32; ++i) {
    rising += static_cast<char>(i);
    falling += static_cast<char>(31 - i);
  }
  return {{"", 0},
          {"123456789", 0xE3069283},
          {std::string(32, '\0'), 0x8A9136AA},
          {std::string(32, '\xFF'), 0x62A8AB43},
          {rising, 0x46DD794E},
          {falling, 0x113FDB5C}};
}

TEST_CASE("CRC-32C gives the published values, with and without SSE4.2") {
  for (const Vector& vector : known_vectors()) {
    CHECK(crc32c(as_bytes_of(vector.text)) == vector.crc);
    CHECK(crc32c_portable(as_bytes_of(vector.text)) == vector.crc);
  }
}

TEST_CASE("CRC-32C of two parts, cut anywhere, is that of the whole") {
  const std::string text = "a text that is longer than two eight-byte words";
  const std::uint32_t whole = crc32c(as_bytes_of(text));
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    const std::string front = text.substr(0, cut), back = text.substr(cut);
    CHECK(crc32c(as_bytes_of(back), crc32c(as_bytes_of(front))) == whole);
    CHECK(crc32c_portable(as_bytes_of(back), crc32c_portable(as_bytes_of(front))) == whole);
  }
}

}  // namespace
}  // namespace gradsync

using namespace gradsync;

TEST_CASE("half: known values both ways, without the compiler's type") {
  const struct {
    float value;
    std::uint16_t bits;
  } known[] = {{0.0f, 0},          {-0.0f, 0x8000},    {1.0f, 0x3c00},      {-2.0f, 0xc000},
               {65504.0f, 0x7bff}, {0x1p-14f, 0x0400}, {0x1p-24f, 0x0001},  {0x3ffp-24f, 0x03ff},
               {0.1f, 0x2e66},     {1e6f, 0x7c00},     {-1e6f, 0xfc00},     {65519.0f, 0x7bff},
               {65520.0f, 0x7c00}, {0x1p-25f, 0x0000}, {0x1.8p-24f, 0x0002}};
  for (const auto& one : known)
    CHECK_MESSAGE(to_fp16_portable(one.value) == one.bits, one.value);
  CHECK(from_fp16_portable(0x3555) == 0.333251953125f);
  CHECK(std::signbit(from_fp16_portable(0x8000)));
  CHECK(from_fp16_portable(0xfc00) == -std::numeric_limits<float>::infinity());
  CHECK(std::isnan(from_fp16_portable(0x7e00)));
  CHECK(std::isnan(from_fp16_portable(to_fp16_portable(std::nanf("")))));
}

TEST_CASE("half: every half comes back, and what lies between goes to the nearer, ties to even") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const auto here = static_cast<std::uint16_t>(bits);
    const auto next = static_cast<std::uint16_t>(bits + 1);
    const float low = from_fp16_portable(here);
    const float high = next == 0x7c00 ? 65536.0f : from_fp16_portable(next);
    const float middle = low + (high - low) / 2;
    const std::uint16_t even = bits % 2 == 0 ? here : next;
    wrong += to_fp16_portable(low) != here;
    wrong += to_fp16_portable(middle) != even;
    wrong += to_fp16_portable(std::nextafter(middle, 0.0f)) != here;
    wrong += to_fp16_portable(std::nextafter(middle, 1e9f)) != next;
    wrong += to_fp16_portable(-low) != (here | 0x8000u);
    wrong += from_fp16(here) != low;
    wrong += to_fp16(middle) != even;
  }
  CHECK(wrong == 0);
}
