// SPDX-License-Identifier: BSD-3-Clause
#include "record/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "record/reader.h"
#include "serial/expect_error.h"
#include "serial/sample_run.h"

using namespace gradsync;
using namespace gradsync::testing;

namespace {

const SampleShape kSmall{"ddp", 2, 4, 2, 32, 1};

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

/// The bytes of a journal of kSmall, without an end.
std::string journal_bytes(const TestFolder& folder) {
  Recorder recorder(folder / "run.h5", sample_info(kSmall));
  record_sample(recorder, kSmall);
  return read_text_file(folder / "run.h5.journal");
}

/// Where each record ends, the header first.
std::vector<std::size_t> record_ends(const std::string& journal) {
  std::vector<std::size_t> ends = {kJournalHeaderBytes};
  while (ends.back() < journal.size()) {
    std::uint32_t length = 0;
    std::memcpy(&length, journal.data() + ends.back(), sizeof length);
    ends.push_back(ends.back() + 8 + length + 4);
  }
  return ends;
}

// A journal of kSmall: header, info, verification, two rows, epoch 0, two rows, epoch 1.
constexpr std::size_t kRowsAfter[] = {0, 0, 0, 1, 2, 2, 3, 4, 4};
constexpr std::size_t kEpochsAfter[] = {0, 0, 0, 0, 0, 1, 1, 1, 2};

bool holds_first(RunReader& run, std::size_t rows, std::size_t epochs) {
  if (run.iterations() != rows || run.epochs().size() != epochs) return false;
  const auto read = run.rows(0, rows);
  for (std::size_t i = 0; i < rows; ++i)
    if (!same(read[i], sample_row(kSmall, i))) return false;
  for (std::size_t e = 0; e < epochs; ++e)
    if (!same(run.epochs()[e], sample_epoch(kSmall, e))) return false;
  return run.loss().rows == rows;
}

bool is_bad_data(const std::filesystem::path& path) {
  try {
    open_run(path);
  } catch (const Error& error) {
    return error.code() == ExitCode::kBadData;
  }
  return false;
}

/// Lets files of this process grow to `bytes` while it lives; writes beyond fail with EFBIG.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

}  // namespace

TEST_CASE("journal: the layout is the documented one, byte for byte") {
  const TestFolder folder;
  JournalWriter writer(folder / "j");
  writer.append(RecordType::kEpoch, bytes_of("123456789"));
  const std::string text = read_text_file(folder / "j");
  REQUIRE(text.size() == 16 + 8 + 9 + 4);
  CHECK(text.substr(0, 12) == std::string("\x89GSJ\r\n\x1a\n\x06\0\0\0", 12));
  CHECK(text.substr(16, 17) == std::string("\x09\0\0\0\x03\0\0\0"
                                           "123456789",
                                           17));
}

TEST_CASE("journal: cut at every byte, no whole record is lost and nothing is made up") {
  const TestFolder folder;
  const std::string journal = journal_bytes(folder);
  const auto ends = record_ends(journal);
  REQUIRE(ends.size() == std::size(kRowsAfter));
  std::size_t wrong = 0;
  for (std::size_t cut = 0; cut <= journal.size(); ++cut) {
    const auto path = folder / "cut.journal";
    write_plainly(path, journal.substr(0, cut));
    if (cut < ends[1]) {  // not even the record that describes the run
      wrong += is_bad_data(path) ? 0 : 1;
      continue;
    }
    const auto whole = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), cut) -
                                                ends.begin() - 1);
    const auto run = open_run(path);
    const bool right = holds_first(*run, kRowsAfter[whole], kEpochsAfter[whole]) &&
                       run->remarks().empty() == (cut == ends[whole]) &&
                       run->status() == RunStatus::kRunning;
    wrong += right ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("journal: every single-byte corruption is caught") {
  const TestFolder folder;
  const std::string journal = journal_bytes(folder);
  const auto ends = record_ends(journal);
  std::size_t wrong = 0;
  for (std::size_t at = 0; at < journal.size(); ++at) {
    std::string damaged = journal;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
    const auto path = folder / "damaged.journal";
    write_plainly(path, damaged);
    if (at < ends[1]) {
      wrong += is_bad_data(path) ? 0 : 1;
      continue;
    }
    const auto whole =
        static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), at) - ends.begin() - 1);
    const auto run = open_run(path);
    const bool right =
        holds_first(*run, kRowsAfter[whole], kEpochsAfter[whole]) && run->remarks().size() == 1;
    wrong += right ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("journal: the remark counts what was left out") {
  const TestFolder folder;
  const std::string journal = journal_bytes(folder);
  write_plainly(folder / "torn", journal + "torn");
  const auto run = open_run(folder / "torn");
  REQUIRE(run->remarks().size() == 1);
  CHECK(run->remarks()[0] ==
        "journal: 4 bytes at the end are not a whole record, left out; 4 iterations read");
}

TEST_CASE("journal: what cannot be appended to says why") {
  const TestFolder folder;
  const auto code = [&](const std::filesystem::path& path) {
    try {
      JournalWriter::append_to(path);
    } catch (const Error& error) {
      return error.code();
    }
    return ExitCode::kOk;
  };
  CHECK(code(folder / "missing") == ExitCode::kNoInput);
  CHECK(code(folder.path()) == ExitCode::kInputOutput);
  write_plainly(folder / "j", journal_bytes(folder));
  errno = EWOULDBLOCK;  // an earlier call's, which says nothing of the lock
  CHECK(code(folder / "j") == ExitCode::kOk);
  // Of another host, whose process can only be gone where the kernel's lock would show it.
  write_plainly(journal_lock_path(folder / "j"),
                "host elsewhere, process 1, started 1, job , restart 0\n");
  const UniqueFd file(::open((folder / "j").c_str(), O_RDONLY));
  CHECK(code(folder / "j") ==
        (locks_reach_everyone(file.get()) ? ExitCode::kOk : ExitCode::kCannotCreate));
}

TEST_CASE("journal: who can only read it cannot block it") {
  const TestFolder folder;
  write_plainly(folder / "j", journal_bytes(folder));
  const UniqueFd reader(::open((folder / "j").c_str(), O_RDONLY));
  REQUIRE(::flock(reader.get(), LOCK_EX | LOCK_NB) == 0);
  const JournalWriter writer = JournalWriter::append_to(folder / "j");
  CHECK(
      contains(error_text(ExitCode::kCannotCreate, [&] { JournalWriter::append_to(folder / "j"); }),
               "is being written by another job"));
}

TEST_CASE("journal: texts of others have no control characters") {
  RunInfo info = sample_info({});
  info.config.push_back({"model", "\x1b]0;owned\x07", "command line"});
  const auto decoded = decode<RunInfo>(encode(info));
  REQUIRE(decoded);
  CHECK(decoded->config.back().value == "\\x1b]0;owned\\x07");
}

TEST_CASE("journal: a newer version is named with both versions") {
  const TestFolder folder;
  std::string journal = journal_bytes(folder);
  journal[8] = 7;
  const std::uint32_t checksum = crc32c(std::as_bytes(std::span(journal)).first(12));
  std::memcpy(journal.data() + 12, &checksum, sizeof checksum);
  write_plainly(folder / "new", journal);
  CHECK_THROWS_WITH_AS(open_run(folder / "new"),
                       doctest::Contains("version 7, this program reads versions 2 to 6"), Error);
}

TEST_CASE("journal: another program's file with the same kind of header is none") {
  const TestFolder folder;
  std::string journal = journal_bytes(folder);
  journal[0] = 'X';
  const std::uint32_t checksum = crc32c(std::as_bytes(std::span(journal)).first(12));
  std::memcpy(journal.data() + 12, &checksum, sizeof checksum);
  write_plainly(folder / "other", journal);
  CHECK_THROWS_WITH_AS(JournalReader(folder / "other"), doctest::Contains("is not a journal"),
                       Error);
}

TEST_CASE("journal: an unknown record is passed over, a sound one without sense ends the reading") {
  const TestFolder folder;
  JournalWriter writer(folder / "j");
  writer.append(RecordType::kInfo, encode(sample_info(kSmall)));
  writer.append(static_cast<RecordType>(99), bytes_of("from the future"));
  writer.append(RecordType::kIteration, encode(sample_row(kSmall, 0)));
  writer.append(RecordType::kIteration, bytes_of("no row at all"));
  writer.append(RecordType::kIteration, encode(sample_row(kSmall, 1)));
  const auto run = open_run(folder / "j");
  CHECK(run->iterations() == 1);
  REQUIRE(run->remarks().size() == 1);
  CHECK(run->remarks()[0].find("does not fit this run") != std::string::npos);
}

TEST_CASE("journal: counts that do not fit the payload are refused before memory is taken") {
  auto payload = encode(sample_row(kSmall, 0));
  const std::uint32_t huge = 0xFFFFFFFF;
  for (const std::size_t offset : {52U, 56U}) {  // ranks, buckets
    auto damaged = payload;
    std::memcpy(damaged.data() + offset, &huge, sizeof huge);
    CHECK_FALSE(decode<IterationRow>(damaged));
  }
  CHECK(decode<IterationRow>(payload));
  CHECK_FALSE(decode<IterationRow>({}));
}

TEST_CASE("journal: an integer of a JSON payload is one, and can be held") {
  EpochRow epoch = sample_epoch(kSmall, 0);
  epoch.new_batches = 987654;
  const auto payload = encode(epoch);
  const std::string sound(reinterpret_cast<const char*>(payload.data()), payload.size());
  const auto at = sound.find("987654");
  REQUIRE(at != std::string::npos);
  for (const char* number : {"1e30", "1.5", "18446744073709551615", "true"}) {
    std::string text = sound;
    CHECK_FALSE(decode<EpochRow>(bytes_of(text.replace(at, 6, number))));
  }
  REQUIRE(decode<EpochRow>(bytes_of(sound)));
  CHECK(decode<EpochRow>(bytes_of(sound))->new_batches == 987654);
}

TEST_CASE("journal: JSON payloads keep NaN, infinities and texts that are not UTF-8") {
  EpochRow epoch = sample_epoch(kSmall, 0);
  epoch.ranks[0].train_loss = INFINITY;
  epoch.ranks[1].train_loss = -INFINITY;
  const auto read = decode<EpochRow>(encode(epoch));
  REQUIRE(read);
  CHECK(read->ranks[0].train_loss == INFINITY);
  CHECK(read->ranks[1].train_loss == -INFINITY);
  CHECK(std::isnan(read->ranks[0].test_loss));
  CHECK(read->ranks[1].train_accuracy == epoch.ranks[1].train_accuracy);
  RunInfo info = sample_info(kSmall);
  info.provenance[0].value = "caf\xE9";
  CHECK(decode<RunInfo>(encode(info)));
  for (const char* text : {"", "{", "[]", "{\"epoch\":1}", "null"}) {
    CHECK_FALSE(decode<EpochRow>(bytes_of(text)));
    CHECK_FALSE(decode<RunInfo>(bytes_of(text)));
    CHECK_FALSE(decode<RunEnd>(bytes_of(text)));
    CHECK_FALSE(decode<VerificationRow>(bytes_of(text)));
  }
}

TEST_CASE("journal: a write that fails half way leaves whole records, and writing can continue") {
  const TestFolder folder;
  Recorder recorder(folder / "run.h5", sample_info(kSmall));
  recorder.add(sample_row(kSmall, 0));
  recorder.sync();
  const auto before = std::filesystem::file_size(folder / "run.h5.journal");
  {
    const FileSizeLimit limit(before + 100);
    try {
      recorder.add(sample_row(kSmall, 1));
      FAIL("the row does not fit");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kInputOutput);
    }
  }
  CHECK(recorder.acknowledged() == 1);
  CHECK(std::filesystem::file_size(folder / "run.h5.journal") == before);
  recorder.add(sample_row(kSmall, 1));
  recorder.sync();
  CHECK(recorder.acknowledged() == 2);
  const auto run = open_run(folder / "run.h5.journal");
  CHECK(run->remarks().empty());
  CHECK(holds_first(*run, 2, 0));
}

TEST_CASE("journal: no file stays behind if not even the description fits") {
  const TestFolder folder;
  for (const rlim_t bytes : {4, 40}) {
    const FileSizeLimit limit(bytes);
    CHECK_THROWS_AS(Recorder(folder / "run.h5", sample_info(kSmall)), Error);
    CHECK(std::filesystem::is_empty(folder.path()));
  }
}
