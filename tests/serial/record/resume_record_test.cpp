#include <string>

#include <doctest/doctest.h>

#include "base/error.h"
#include "base/file.h"
#include "record/journal.h"
#include "record/journal_run.h"
#include "record/reader.h"
#include "record/recorder.h"
#include "serial/expect_error.h"
#include "serial/sample_run.h"

using namespace gradsync;
using namespace gradsync::testing;

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

}  // namespace

TEST_CASE("resume: a stopped run is continued in one journal and one file, under one name") {
  const TestFolder folder;
  const auto output = folder / "run.h5";
  const std::int64_t bytes = record_until(output, 7, 7, /*stopped=*/true);
  CHECK(open_run(output)->status() == RunStatus::kPartial);
  CHECK(open_run(output)->iterations() == 7);
  CHECK(open_run(journal_path(output))->status() == RunStatus::kPartial);
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
  CHECK(run->info().run_id == sample_info(kLongShape).run_id);
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
  CHECK(open_journal(journal_path(output))->iterations_at(at_8) == 8);
  {
    Recorder recorder(output, resume_row_at(4, at_4));
    record_part(recorder, 4, 6);
    at_6 = recorder.durable_bytes();
  }
  const auto journal = open_journal(journal_path(output));
  CHECK(journal->iterations_at(at_4) == 4);
  CHECK(journal->iterations_at(at_6) == 6);
  CHECK_FALSE(journal->iterations_at(at_8));
  CHECK_FALSE(journal->iterations_at(journal->read_bytes() + 1));
  CHECK_FALSE(journal->iterations_at(journal->first_row_at() - 1));
  const std::string before = read_text_file(journal_path(output));
  for (const ResumeRow& wrong :
       {resume_row_at(8, at_8), resume_row_at(6, at_8), resume_row_at(5, at_6)}) {
    error_text(ExitCode::kBadData, [&] { Recorder recorder(output, wrong); });
    CHECK(read_text_file(journal_path(output)) == before);
  }
  Recorder recorder(output, resume_row_at(6, at_6));
  record_part(recorder, 6, 12);
  recorder.finish(RunStatus::kComplete);
  check_all_rows(*open_run(output));
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
  Recorder recorder(output, resume_row_at(4, bytes));
  record_part(recorder, 4, 12);
  recorder.finish(RunStatus::kComplete);
  check_all_rows(*open_run(output));
}

TEST_CASE("resume: from the very start, all but the description is dropped") {
  const TestFolder folder;
  const auto output = folder / "run.h5";
  record_until(output, 0, 6, /*stopped=*/false);
  JournalReader reader(journal_path(output));
  reader.next();
  const std::int64_t bytes = reader.position();
  Recorder recorder(output, resume_row_at(0, bytes));
  record_part(recorder, 0, 12);
  recorder.finish(RunStatus::kComplete);
  check_all_rows(*open_run(output));
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
