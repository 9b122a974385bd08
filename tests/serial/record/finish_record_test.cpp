// What becomes a run file: nothing but a journal that holds all that was written.
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "record/journal.h"
#include "record/reader.h"
#include "record/recorder.h"
#include "serial/expect_error.h"
#include "serial/sample_run.h"

using namespace gradsync;
using namespace gradsync::testing;
namespace fs = std::filesystem;

namespace {

const SampleShape kShape{"ddp", 2, 4, 2, 32, 1};
constexpr std::size_t kResumedAt = 2;

/// The first process: every type of record but those of the end and of a resume, among them a row
/// behind the checkpoint at kResumedAt. Returns the bytes up to the checkpoint.
std::int64_t record_first_part(const fs::path& output) {
  Recorder recorder(output, sample_info(kShape));
  recorder.add(sample_verification());
  for (std::size_t i = 0; i < kResumedAt; ++i)
    recorder.add(sample_row(kShape, i));
  recorder.add(sample_epoch(kShape, 0));
  record_measurements(recorder, kShape.ranks);
  recorder.add(Quantization());
  const std::int64_t bytes = recorder.durable_bytes();
  recorder.add(sample_row(kShape, kResumedAt));
  return bytes;
}

void record_second_part(Recorder& recorder) {
  for (std::size_t i = kResumedAt; i < kShape.iterations; ++i)
    recorder.add(sample_row(kShape, i));
  recorder.add(sample_epoch(kShape, 1));
  recorder.add(TrafficRow{"trained", 2, std::vector<RankTraffic>(kShape.ranks)});
  recorder.add(ReplicaRow{std::vector<RankReplica>(kShape.ranks)});
}

ResumeRow resume_at(std::int64_t bytes) {
  return {kResumedAt, bytes, "2026-01-02T03:04:05Z", "node1"};
}

/// A journal with records of all types, of a run that has ended and is not published.
WholeJournal record_whole(const fs::path& output) {
  const std::int64_t bytes = record_first_part(output);
  {
    Recorder recorder(output, resume_at(bytes));
    record_second_part(recorder);
  }
  JournalWriter writer = JournalWriter::append_to(journal_path(output));
  writer.append(RecordType::kEnd, encode(RunEnd{RunStatus::kComplete, "2026-01-02T03:04:05Z"}));
  return {static_cast<std::int64_t>(kShape.iterations), RunStatus::kComplete, writer.bytes()};
}

/// Where each record begins, and the end.
std::vector<std::size_t> record_places(const fs::path& journal) {
  std::vector<std::size_t> places;
  JournalReader reader(journal);
  while (const auto record = reader.next())
    places.push_back(static_cast<std::size_t>(record->offset));
  places.push_back(static_cast<std::size_t>(reader.position()));
  return places;
}

/// Of the header and of each record its first byte, one of its type, one of its payload and the
/// last.
std::set<std::size_t> bytes_to_damage(const fs::path& journal) {
  const auto places = record_places(journal);
  std::set<std::size_t> bytes = {0, 9, 14};
  for (std::size_t i = 0; i + 1 < places.size(); ++i)
    bytes.insert({places[i], places[i] + 5, places[i] + 20, places[i + 1] - 1});
  return bytes;
}

/// Through a descriptor of its own, as a disk would.
void flip_byte(const fs::path& path, std::size_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const int good = file.get();
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(good ^ (1 << (at % 8))));
}

void check_whole(const fs::path& output) {
  const auto run = open_run(output);
  CHECK(run->status() == RunStatus::kComplete);
  REQUIRE(run->iterations() == kShape.iterations);
  const auto rows = run->rows(0, kShape.iterations);
  for (std::size_t i = 0; i < rows.size(); ++i)
    CHECK(same(rows[i], sample_row(kShape, i)));
  CHECK(run->epochs().size() == 2);
}

}  // namespace

TEST_CASE(
    "finish: a journal with one changed byte, wherever it is, or one missing is no whole run") {
  const TestFolder folder;
  const WholeJournal written = record_whole(folder / "run.h5");
  const std::string good = read_text_file(journal_path(folder / "run.h5"));
  REQUIRE(record_places(journal_path(folder / "run.h5")).size() > 20);
  CHECK(open_whole(journal_path(folder / "run.h5"), written)->iterations() == kShape.iterations);
  std::size_t accepted = 0;
  const auto look_at = [&](const std::string& bad) {
    write_plainly(folder / "bad", bad);
    try {
      open_whole(folder / "bad", written);
      ++accepted;
    } catch (const Error& error) {
      if (error.code() != ExitCode::kInputOutput) ++accepted;
    }
  };
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    look_at(bad);
    look_at(good.substr(0, at));
  }
  CHECK(accepted == 0);
}

TEST_CASE("finish: a journal that is damaged while the run writes it is kept and not published") {
  const TestFolder folder;
  std::set<std::size_t> positions;
  {
    record_whole(folder / "sample.h5");
    positions = bytes_to_damage(journal_path(folder / "sample.h5"));
    // All but the record of the end, which is written by `finish` itself.
    const auto places = record_places(journal_path(folder / "sample.h5"));
    positions.erase(positions.lower_bound(places[places.size() - 2]), positions.end());
  }
  const auto output = folder / "run.h5";
  const std::int64_t bytes = record_first_part(output);
  const std::string first_part = read_text_file(journal_path(output));
  for (const std::size_t at : positions) {
    CAPTURE(at);
    write_plainly(journal_path(output), first_part);
    Recorder recorder(output, resume_at(bytes));
    record_second_part(recorder);
    recorder.sync();
    flip_byte(journal_path(output), at);
    const std::string text =
        error_text(ExitCode::kInputOutput, [&] { recorder.finish(RunStatus::kComplete); });
    CHECK(contains(text, "journal"));
    CHECK(contains(text, "check the disk"));
    CHECK_FALSE(fs::exists(output));
    CHECK(fs::exists(journal_path(output)));
  }
}

TEST_CASE("finish: damage between two processes never makes a shorter run") {
  const TestFolder folder;
  const auto output = folder / "run.h5";
  const std::int64_t bytes = record_first_part(output);
  const std::string first_part = read_text_file(journal_path(output));
  std::size_t refused = 0, published = 0;
  for (const std::size_t at : bytes_to_damage(journal_path(output))) {
    CAPTURE(at);
    fs::remove(output);
    write_plainly(journal_path(output), first_part);
    flip_byte(journal_path(output), at);
    try {
      Recorder recorder(output, resume_at(bytes));
      record_second_part(recorder);
      recorder.finish(RunStatus::kComplete);
      check_whole(output);
      ++published;
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kBadData);
      CHECK_FALSE(fs::exists(output));
      ++refused;
    }
  }
  // What the resume drops may be damaged.
  CHECK(published == 4);
  CHECK(refused > 30);
}

TEST_CASE("finish: rows that are missing, or an end of another status, are no whole run") {
  const TestFolder folder;
  const auto path = journal_path(folder / "run.h5");
  WholeJournal written = record_whole(folder / "run.h5");
  ++written.iterations;
  CHECK(contains(error_text(ExitCode::kInputOutput, [&] { open_whole(path, written); }),
                 "4 of 5 iterations can be read"));
  --written.iterations;
  written.status = RunStatus::kPartial;
  error_text(ExitCode::kInputOutput, [&] { open_whole(path, written); });
  written.status = RunStatus::kComplete;
  ++written.bytes;
  error_text(ExitCode::kInputOutput, [&] { open_whole(path, written); });
}

TEST_CASE("finish: interrupted before the run file has its name, it is done later") {
  const TestFolder folder;
  const auto output = folder / "run.h5";
  CHECK_FALSE(holds_complete_run(output));
  record_whole(output);
  CHECK(holds_complete_run(output));
  CHECK_FALSE(is_published(output));
  write_plainly(folder / "run.h5.tmp-0123456789ab", "left by a killed process");
  finish_interrupted(output);
  check_whole(output);
  CHECK(folder.entries() == 1);
  CHECK_FALSE(holds_complete_run(output));
  CHECK_FALSE(is_published(output));  // nothing is left over
}

TEST_CASE("finish: a partial file that an earlier stop made is replaced later too") {
  const TestFolder folder;
  const auto output = folder / "run.h5";
  const std::int64_t bytes = record_first_part(output);
  {
    Recorder recorder(output, resume_at(bytes));
    recorder.finish(RunStatus::kPartial);
  }
  CHECK_FALSE(holds_complete_run(output));
  CHECK_FALSE(is_published(output));
  {
    Recorder recorder(output, resume_at(bytes));
    record_second_part(recorder);
  }
  JournalWriter::append_to(journal_path(output))
      .append(RecordType::kEnd, encode(RunEnd{RunStatus::kComplete, "2026-01-02T03:04:05Z"}));
  CHECK(holds_complete_run(output));
  finish_interrupted(output);
  check_whole(output);
  CHECK(folder.entries() == 1);
}

TEST_CASE("finish: interrupted before the journal was removed, only that is done") {
  const TestFolder folder;
  const auto output = folder / "run.h5";
  record_whole(output);
  const std::string journal = read_text_file(journal_path(output));
  finish_interrupted(output);
  const std::string file = read_text_file(output);
  write_plainly(journal_path(output), journal);
  CHECK(is_published(output));
  finish_interrupted(output);
  CHECK(folder.entries() == 1);
  CHECK(read_text_file(output) == file);
}

TEST_CASE("finish: a file that is not of the journal's run is neither replaced nor believed") {
  const TestFolder folder;
  const auto output = folder / "run.h5";
  record_whole(output);
  write_sample(folder / "other.h5", {"ddp", 3, 2, 5, 32, 1});
  fs::rename(folder / "other.h5", output);
  const std::string other = read_text_file(output);
  CHECK_FALSE(is_published(output));
  error_text(ExitCode::kCannotCreate, [&] { finish_interrupted(output); });
  CHECK(read_text_file(output) == other);
  CHECK(holds_complete_run(output));
  // Of the same run, but with other rows.
  fs::remove(output);
  write_sample(folder / "same.h5", {"ddp", 2, 2, 5, 32, 1});
  fs::rename(folder / "same.h5", output);
  CHECK(contains(error_text(ExitCode::kInputOutput, [&] { finish_interrupted(output); }),
                 "differs from the journal"));
  CHECK(holds_complete_run(output));
}

TEST_CASE("finish: a journal that another process writes is not published from outside") {
  const TestFolder folder;
  const auto output = folder / "run.h5";
  record_whole(output);
  const JournalWriter writer = JournalWriter::append_to(journal_path(output));
  CHECK(contains(error_text(ExitCode::kCannotCreate, [&] { finish_interrupted(output); }),
                 "by another job"));
  CHECK_FALSE(fs::exists(output));
}
