#include <filesystem>
#include <numeric>

#include <doctest/doctest.h>

#include "base/process.h"
#include "data/fetch.h"
#include "data/synthetic.h"
#include "serial/data_files.h"
#include "serial/expect_error.h"
#include "serial/test_folder.h"

namespace gradsync {
namespace {

namespace fs = std::filesystem;

void quietly(const std::string&) {}

/// A folder to pack: DIR/cifar-10-batches-bin/…
struct Workshop : TestFolder {
  Workshop() { write_official_sizes(inside()); }

  fs::path inside() const { return path() / kArchiveFolder; }
  /// Packs what is inside, with more arguments for tar. Compressing takes seconds.
  std::string pack(const std::vector<std::string>& more = {}) const {
    const std::string archive = (path() / "archive.tar.gz").string();
    // The files are hard links of one; packed as links they would be empty for --to-stdout.
    std::vector<std::string> command = {
        "tar", "--create", "--file", archive, "--hard-dereference", "--directory", path().string()};
    command.insert(command.end(), more.begin(), more.end());
    command.emplace_back(kArchiveFolder);
    REQUIRE(run_process(command).succeeded());
    return archive;
  }
  fs::path target() const { return path() / "target"; }
  /// What the folder holds besides the workshop's own files.
  std::vector<std::string> strangers() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path())) {
      const std::string name = entry.path().filename().string();
      if (name != kArchiveFolder && name != "archive.tar.gz") names.push_back(name);
    }
    return names;
  }
};

bool curl_is_missing() {
  try {
    run_process({"curl", "--version"}, {{}, "/dev/null", {}, {}, {}});
    return false;
  } catch (const Error&) {
    MESSAGE("SKIP: curl is not installed");
    return true;
  }
}

void check_refused(const Workshop& shop, const std::string& archive, const std::string& part) {
  const std::string text =
      error_text(ExitCode::kBadData, [&] { fetch(shop.target(), archive, quietly); });
  CAPTURE(text);
  CHECK(contains(text, part));
  CHECK(shop.strangers().empty());
}

TEST_CASE_FIXTURE(Workshop,
                  "an archive whose files pass is unpacked, and said not to be official") {
  const std::string archive = pack({"--gzip"});
  std::string said;
  const FetchResult result =
      fetch(target(), archive, [&](const std::string& line) { said += line + "\n"; });
  CHECK_FALSE(result.already_there);
  CHECK_FALSE(result.official_archive);
  CHECK(contains(said, "not the official archive"));
  CHECK(result.digest.combined == Cifar10(inside()).verify().combined);
  CHECK(strangers() == std::vector<std::string>{"target"});
  CHECK(std::distance(fs::directory_iterator(target()), {}) == 6);

  const FetchResult again = fetch(target(), "/nowhere/archive", quietly);
  CHECK(again.already_there);
  CHECK(again.digest.combined == result.digest.combined);
}

TEST_CASE_FIXTURE(Workshop, "an address is downloaded, unpacked, and the download removed") {
  if (curl_is_missing()) return;
  const FetchResult result = fetch(target(), "file://" + pack(), quietly);
  CHECK(result.digest.files.size() == 6);
  CHECK(strangers() == std::vector<std::string>{"target"});
}

TEST_CASE_FIXTURE(Workshop, "the class names come along when they are there") {
  write_file_atomically(inside() / "batches.meta.txt", "airplane\n");
  fetch(target(), pack(), quietly);
  CHECK(read_text_file(target() / "batches.meta.txt") == "airplane\n");
}

TEST_CASE_FIXTURE(Workshop, "an archive without one of the files is refused") {
  fs::remove(inside() / "data_batch_5.bin");
  check_refused(*this, pack(), "data_batch_5.bin");
}

TEST_CASE_FIXTURE(Workshop, "an archive with a short, long or bad file is refused") {
  const fs::path file = inside() / "data_batch_1.bin";
  fs::resize_file(file, 1000);
  check_refused(*this, pack(), "bytes are missing");
  // Sparse: 10 GB that take no room, unless someone unpacks them.
  fs::resize_file(file, 10'000'000'000);
  check_refused(*this, pack({"--sparse"}), "larger than 30730000 bytes");
  write_file_atomically(file, plain_records(kOfficialRecords));
  set_byte(file, 5 * kRecordBytes, 200);
  check_refused(*this, pack(), "label 200");
}

TEST_CASE_FIXTURE(Workshop, "a member that points elsewhere writes nothing elsewhere") {
  const fs::path outside = path() / "outside.bin";
  const std::string climb =
      "s|^" + std::string(kArchiveFolder) + "/data_batch_2.bin|../outside.bin|";
  const std::string archive = pack({"--absolute-names", "--transform", climb});
  REQUIRE(contains(capture_process({"tar", "-tPf", archive}).output, "../outside.bin\n"));
  check_refused(*this, archive, "data_batch_2.bin");
  CHECK_FALSE(fs::exists(outside));
}

TEST_CASE_FIXTURE(Workshop, "a link in place of a file is not followed") {
  const fs::path secret = inside() / "secret";
  fs::rename(inside() / "data_batch_2.bin", secret);
  fs::create_symlink(secret, inside() / "data_batch_2.bin");
  check_refused(*this, pack(), "bytes are missing");
}

TEST_CASE_FIXTURE(Workshop, "what is no archive, or a torn one, is refused") {
  const std::string archive = pack({"--gzip"});
  fs::resize_file(archive, fs::file_size(archive) / 2);
  check_refused(*this, archive, "tar ended with");
  if (!curl_is_missing()) check_refused(*this, "file://" + archive, "tar ended with");
  write_file_atomically(archive, "<html>404</html>");
  check_refused(*this, archive, "data_batch_1.bin");
}

TEST_CASE("an existing folder that is no valid data set is never touched") {
  const TestFolder folder;
  write_file_atomically(folder / "thesis.tex", "years of work");
  const std::string text = error_text(ExitCode::kCannotCreate,
                                      [&] { fetch(folder.path(), "/nowhere/archive", quietly); });
  CHECK(contains(text, folder.path().string()));
  CHECK(folder.entries() == 1);
}

TEST_CASE("a missing archive is named; a failed download says how to continue") {
  const TestFolder folder;
  CHECK(contains(
      error_text(ExitCode::kNoInput, [&] { fetch(folder / "a", "/nowhere/archive", quietly); }),
      "/nowhere/archive"));
  if (curl_is_missing()) return;
  CHECK(contains(error_text(ExitCode::kInputOutput,
                            [&] { fetch(folder / "a", "file:///nowhere/archive", quietly); }),
                 "--from FILE"));
  // Only web and file addresses: no other protocol of curl's is spoken.
  error_text(ExitCode::kInputOutput, [&] { fetch(folder / "a", "gopher://localhost/x", quietly); });
  CHECK(folder.entries() == 0);
}

}  // namespace
}  // namespace gradsync
