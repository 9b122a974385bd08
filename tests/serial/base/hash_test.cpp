#include "base/hash.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

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

}  // namespace
}  // namespace gradsync

namespace gradsync {
namespace {

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
