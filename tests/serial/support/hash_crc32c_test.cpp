#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "support/hash.h"

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
