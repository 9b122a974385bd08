#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>

#include <doctest/doctest.h>

#include "serial/expect_error.h"
#include "serial/test_folder.h"
#include "support/file.h"

namespace gradsync {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST_CASE("an atomic write makes the file, replaces it, and leaves nothing beside it") {
  const TestFolder folder;
  write_file_atomically(folder / "a", "one");
  CHECK(read_text_file(folder / "a") == "one");
  write_file_atomically(folder / "a", "");
  CHECK(read_text_file(folder / "a").empty());
  CHECK(folder.entries() == 1);
}

TEST_CASE("an atomic write that fails leaves nothing behind") {
  const TestFolder folder;
  const fs::path taken = folder / "taken";
  fs::create_directories(taken / "full");
  const std::string text =
      error_text(ExitCode::kCannotCreate, [&] { write_file_atomically(taken, "x"); });
  CHECK(contains(text, taken.string()));
  CHECK(folder.entries() == 2);
  error_text(ExitCode::kCannotCreate, [&] { write_file_atomically(folder / "no/such", "x"); });
}

TEST_CASE("a full disk is an input/output error with the path") {
  const UniqueFd full(::open("/dev/full", O_WRONLY));
  REQUIRE(full);
  const std::string text = error_text(ExitCode::kInputOutput,
                                      [&] { write_all(full.get(), bytes_of("text"), "run.h5"); });
  CHECK(contains(text, "run.h5"));
  CHECK(contains(text, "No space left on device"));
}

TEST_CASE("create_file refuses a file that exists and leaves its content") {
  const TestFolder folder;
  write_file_atomically(folder / "a", "kept");
  error_text(ExitCode::kCannotCreate, [&] { create_file(folder / "a"); });
  CHECK(read_text_file(folder / "a") == "kept");
}

TEST_CASE("a mapped file shows the file; an empty one is empty; moving keeps the map") {
  const TestFolder folder;
  write_file_atomically(folder / "a", "mapped");
  write_file_atomically(folder / "empty", "");
  MappedFile first(folder / "a");
  const MappedFile second(std::move(first));
  REQUIRE(second.bytes().size() == 6);
  CHECK(static_cast<char>(second.bytes()[5]) == 'd');
  CHECK(first.bytes().empty());  // NOLINT(bugprone-use-after-move): what is left is the point
  CHECK(MappedFile(folder / "empty").bytes().empty());
}

TEST_CASE("a mapped file that is missing or a folder") {
  const TestFolder folder;
  error_text(ExitCode::kNoInput, [&] { MappedFile(folder / "none"); });
  error_text(ExitCode::kBadData, [&] { MappedFile(folder.path()); });
}

TEST_CASE("a descriptor is closed when its owner goes, and only then") {
  struct stat status {};
  int number = -1;
  {
    UniqueFd file(::open("/dev/null", O_RDONLY));
    number = file.get();
    const UniqueFd other(std::move(file));
    CHECK_FALSE(file);
    CHECK(::fstat(number, &status) == 0);
  }
  CHECK(::fstat(number, &status) != 0);
}

TEST_CASE("random suffixes are twelve hex digits and differ") {
  const std::string suffix = random_suffix();
  CHECK(suffix.size() == 12);
  CHECK(suffix.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(suffix != random_suffix());
}

}  // namespace
}  // namespace gradsync
