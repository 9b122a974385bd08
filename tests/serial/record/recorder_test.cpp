// SPDX-License-Identifier: BSD-3-Clause
#include "record/recorder.h"

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "base/error.h"
#include "base/file.h"
#include "record/journal.h"
#include "record/reader.h"
#include "serial/expect_error.h"
#include "serial/sample_run.h"

// What becomes a run file: nothing but a journal that holds all that was written.

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

TEST_CASE("finish: of a journal that cannot be read nobody says that it is not complete") {
  const TestFolder folder;
  const auto output = folder / "run.h5";
  fs::create_symlink(journal_path(output).filename(), journal_path(output));
  CHECK_THROWS_AS(holds_complete_run(output), Error);
  write_plainly(output, "any");
  CHECK_THROWS_AS(is_published(output), Error);
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
  {
    const SampleShape shorter{"ddp", 2, 2, 5, 32, 1};
    Recorder recorder(folder / "same.h5", sample_info(shorter));
    record_sample(recorder, shorter);
    recorder.finish(RunStatus::kComplete);
  }
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

namespace {

const SampleShape kLongShape{"ddp", 2, 12, 5, 32, 1};

/// Iterations [first, last) and the epochs that end among them.
void record_part(Recorder& recorder, std::size_t first, std::size_t last) {
  for (std::size_t i = first; i < last; ++i) {
    recorder.add(sample_row(kLongShape, i));
    if ((i + 1) % kLongShape.per_epoch == 0)
      recorder.add(sample_epoch(kLongShape, i / kLongShape.per_epoch));
  }
}

ResumeRow resume_row_at(std::int64_t iteration, std::int64_t journal_bytes) {
  return {iteration, journal_bytes, "2026-01-02T03:04:05Z", "node1,node2"};
}

/// A run with `done` iterations, a checkpoint after `kept` of them, and whatever end.
std::int64_t record_until(const std::filesystem::path& output, std::size_t kept, std::size_t done,
                          bool stopped) {
  Recorder recorder(output, sample_info(kLongShape));
  record_part(recorder, 0, kept);
  const std::int64_t bytes = recorder.durable_bytes();
  record_part(recorder, kept, done);
  if (stopped) recorder.finish(RunStatus::kPartial);
  return bytes;
}

void check_all_rows(RunReader& run) {
  REQUIRE(run.iterations() == kLongShape.iterations);
  const auto rows = run.rows(0, kLongShape.iterations);
  for (std::size_t i = 0; i < rows.size(); ++i)
    CHECK(same(rows[i], sample_row(kLongShape, i)));
  REQUIRE(run.epochs().size() == 2);
  for (std::size_t e = 0; e < 2; ++e)
    CHECK(same(run.epochs()[e], sample_epoch(kLongShape, e)));
  CHECK(run.index().buckets == 3);
}

/// Resumes, records what is left, and compares all of the file.
void complete_from(const std::filesystem::path& output, const ResumeRow& from) {
  Recorder recorder(output, from);
  record_part(recorder, static_cast<std::size_t>(from.iteration), kLongShape.iterations);
  recorder.finish(RunStatus::kComplete);
  check_all_rows(*open_run(output));
}

}  // namespace

TEST_CASE("resume: a stopped run is continued in one journal and one file, under one name") {
  const TestFolder folder;
  const auto output = folder / "run.h5";
  const std::int64_t bytes = record_until(output, 7, 7, /*stopped=*/true);
  CHECK(open_run(output)->status() == RunStatus::kPartial);
  CHECK(open_run(output)->iterations() == 7);
  CHECK(open_run(journal_path(output))->status() == RunStatus::kPartial);
  const std::string run_id = open_run(output)->info().run_id;
  {
    Recorder recorder(output, resume_row_at(7, bytes));
    CHECK(recorder.acknowledged() == 7);
    CHECK(open_run(journal_path(output))->status() == RunStatus::kRunning);
    record_part(recorder, 7, 12);
    recorder.finish(RunStatus::kComplete);
  }
  CHECK(folder.entries() == 1);
  const auto run = open_run(output);
  CHECK(run->status() == RunStatus::kComplete);
  CHECK(run->info().run_id == run_id);
  check_all_rows(*run);
  REQUIRE(run->resumes().size() == 1);
  CHECK(same(run->resumes()[0], resume_row_at(7, bytes)));
}

TEST_CASE("resume: what a killed run recorded after its checkpoint counts no more") {
  const TestFolder folder;
  const auto output = folder / "run.h5";
  // An epoch ends between the checkpoint and the kill.
  const std::int64_t bytes = record_until(output, 3, 6, /*stopped=*/false);
  const std::string torn = read_text_file(journal_path(output)) + "half a record";
  write_plainly(journal_path(output), torn);
  Recorder recorder(output, resume_row_at(3, bytes));
  CHECK(open_run(journal_path(output))->iterations() == 3);
  CHECK(open_run(journal_path(output))->remarks().empty());
  record_part(recorder, 3, 12);
  check_all_rows(*open_run(journal_path(output)));
  recorder.finish(RunStatus::kComplete);
  check_all_rows(*open_run(output));
}

TEST_CASE("resume: stopped twice and once back past an earlier resume") {
  const TestFolder folder;
  const auto output = folder / "run.h5";
  const std::int64_t bytes = record_until(output, 4, 4, /*stopped=*/true);
  std::int64_t later = 0;
  {
    Recorder recorder(output, resume_row_at(4, bytes));
    record_part(recorder, 4, 8);
    later = recorder.durable_bytes();
    recorder.finish(RunStatus::kPartial);
  }
  CHECK(open_run(output)->iterations() == 8);
  {
    Recorder recorder(output, resume_row_at(8, later));
    record_part(recorder, 8, 9);
  }
  CHECK(open_run(journal_path(output))->resumes().size() == 2);
  Recorder recorder(output, resume_row_at(4, bytes));
  record_part(recorder, 4, 12);
  recorder.finish(RunStatus::kComplete);
  const auto run = open_run(output);
  check_all_rows(*run);
  CHECK(run->resumes().size() == 1);
}

TEST_CASE("resume: a place on an abandoned branch is refused, and nothing is changed") {
  const TestFolder folder;
  const auto output = folder / "run.h5";
  std::int64_t at_4 = 0, at_8 = 0, at_6 = 0;
  {
    Recorder recorder(output, sample_info(kLongShape));
    record_part(recorder, 0, 4);
    at_4 = recorder.durable_bytes();
    record_part(recorder, 4, 8);
    at_8 = recorder.durable_bytes();
    record_part(recorder, 8, 10);
  }
  CHECK(JournalRun(journal_path(output)).iterations_at(at_8) == 8);
  {
    Recorder recorder(output, resume_row_at(4, at_4));
    record_part(recorder, 4, 6);
    at_6 = recorder.durable_bytes();
  }
  const JournalRun journal(journal_path(output));
  CHECK(journal.iterations_at(at_4) == 4);
  CHECK(journal.iterations_at(at_6) == 6);
  CHECK_FALSE(journal.iterations_at(at_8));
  CHECK_FALSE(journal.iterations_at(journal.read_bytes() + 1));
  CHECK_FALSE(journal.iterations_at(journal.first_row_at() - 1));
  const std::string before = read_text_file(journal_path(output));
  for (const ResumeRow& wrong :
       {resume_row_at(8, at_8), resume_row_at(6, at_8), resume_row_at(5, at_6)}) {
    error_text(ExitCode::kBadData, [&] { Recorder recorder(output, wrong); });
    CHECK(read_text_file(journal_path(output)) == before);
  }
  complete_from(output, resume_row_at(6, at_6));
}

TEST_CASE("resume: behind a record that does not fit, the journal can still be completed") {
  const TestFolder folder;
  const auto output = folder / "run.h5";
  const std::int64_t bytes = record_until(output, 4, 8, /*stopped=*/false);
  {
    JournalWriter writer = JournalWriter::append_to(journal_path(output));
    writer.append(RecordType::kResume, encode(resume_row_at(9, bytes)));
    writer.append(RecordType::kIteration, encode(sample_row(kLongShape, 9)));
  }
  complete_from(output, resume_row_at(4, bytes));
}

TEST_CASE("resume: from the very start, all but the description is dropped") {
  const TestFolder folder;
  const auto output = folder / "run.h5";
  record_until(output, 0, 6, /*stopped=*/false);
  JournalReader reader(journal_path(output));
  reader.next();
  const std::int64_t bytes = reader.position();
  complete_from(output, resume_row_at(0, bytes));
}

TEST_CASE("resume: only its own partial file is replaced") {
  const TestFolder folder;
  const auto output = folder / "run.h5";
  const std::int64_t bytes = record_until(output, 4, 4, /*stopped=*/false);
  const ResumeRow from = resume_row_at(4, bytes);
  const auto refused = [&] {
    return error_text(ExitCode::kCannotCreate, [&] { Recorder recorder(output, from); });
  };
  write_plainly(output, "precious");
  CHECK(contains(refused(), "no partial file of this run"));
  CHECK(read_text_file(output) == "precious");
  std::filesystem::remove(output);
  const SampleShape other{"ddp", 3, 2, 5, 32, 1};
  write_sample(folder / "other.h5", other, RunStatus::kPartial);
  std::filesystem::rename(folder / "other.h5", output);
  CHECK(contains(refused(), "no partial file of this run"));
  std::filesystem::remove(output);
  write_sample(folder / "whole.h5", kLongShape, RunStatus::kComplete);
  std::filesystem::rename(folder / "whole.h5", output);
  CHECK(contains(refused(), "no partial file of this run"));
}

TEST_CASE("resume: a journal that is missing, shorter or in use is refused") {
  const TestFolder folder;
  const auto output = folder / "run.h5";
  error_text(ExitCode::kNoInput, [&] { Recorder recorder(output, resume_row_at(0, 16)); });
  const std::int64_t bytes = record_until(output, 4, 4, /*stopped=*/false);
  CHECK(contains(error_text(ExitCode::kBadData,
                            [&] { Recorder recorder(output, resume_row_at(9, bytes + 1)); }),
                 "do not hold the 9 iterations"));
  const Recorder first(output, resume_row_at(4, bytes));
  CHECK(contains(error_text(ExitCode::kCannotCreate,
                            [&] { Recorder recorder(output, resume_row_at(4, bytes)); }),
                 "by another job"));
}

TEST_CASE("resume: a record that does not fit its journal ends the reading") {
  for (const ResumeRow& wrong :
       {resume_row_at(5, 0), resume_row_at(3, 1 << 20), resume_row_at(2, 900)}) {
    const TestFolder folder;
    const auto output = folder / "run.h5";
    Recorder recorder(output, sample_info(kLongShape));
    record_part(recorder, 0, 4);
    recorder.sync();
    {
      const std::string journal = read_text_file(journal_path(output));
      write_plainly(folder / "copy.journal", journal);
    }
    JournalWriter writer = JournalWriter::append_to(folder / "copy.journal");
    writer.append(RecordType::kResume, encode(wrong));
    writer.append(RecordType::kIteration, encode(sample_row(kLongShape, 4)));
    const auto run = open_run(folder / "copy.journal");
    CHECK(run->iterations() == 4);
    CHECK(run->remarks().size() == 1);
  }
}
