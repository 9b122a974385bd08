#include <string>

#include <doctest/doctest.h>

#include "serial/expect_error.h"
#include "serial/test_folder.h"
#include "support/hash.h"

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
