// SPDX-License-Identifier: BSD-3-Clause
#include "record/recorder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/function_ref.h"
#include "base/parse.h"
#include "record/journal.h"
#include "record/reader.h"
#include "stats/clock.h"

namespace gradsync {

namespace {

namespace fs = std::filesystem;

void sync_file(const fs::path& path) {
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file)
    throw Error(ExitCode::kInputOutput,
                fmt::format("cannot open '{}': {}", path.string(), errno_text()));
  close_file(std::move(file), path);
}

const std::string kCheckDisk = "check the disk; the journal is kept and gradsync-report reads it";

[[noreturn]] void differs(std::string_view what) {
  throw Error(ExitCode::kInputOutput,
              fmt::format("the run file, read back, differs from the journal in {}", what),
              kCheckDisk);
}

// Encoded, so that every field counts and NaN equals NaN.
template <typename Row>
void require_same(const std::vector<Row>& expected, const std::vector<Row>& found,
                  std::string_view what) {
  const auto same = [](const Row& a, const Row& b) { return encode(a) == encode(b); };
  if (!std::ranges::equal(expected, found, same)) differs(what);
}

/// What `look` finds in a file; false where that is damaged, another kind of file, or gone. A file
/// that cannot be read says nothing: that is thrown.
bool found_in(const fs::path& file, FunctionRef<bool()> look) {
  if (!fs::exists(fs::symlink_status(file))) return false;
  try {
    return look();
  } catch (const Error& error) {
    std::error_code ignored;
    const bool gone = fs::status(file, ignored).type() == fs::file_type::not_found;
    if (error.code() != ExitCode::kBadData && !gone) throw;
    return false;
  }
}

/// Whether `file` is the run file with this status of the run that `info` describes.
bool is_run_file(const fs::path& file, const RunInfo& info, RunStatus status) {
  return found_in(file, [&] {
    const auto run = open_hdf5(file);
    return run->info().run_id == info.run_id && run->status() == status;
  });
}

}  // namespace

void require_same_run(RunReader& expected, RunReader& found) {
  if (encode(expected.info()) != encode(found.info())) differs("what describes the run");
  if (expected.status() != found.status() || expected.finished() != found.finished())
    differs("its end");
  if (expected.iterations() != found.iterations()) differs("the number of iterations");
  for_each_list(
      []<typename Row>(const std::vector<Row>& of_expected, const std::vector<Row>& of_found) {
        require_same(of_expected, of_found, kRowKind<Row>.title);
      },
      expected.lists(), found.lists());
  const std::size_t block = rows_per_block(expected.ranks(), expected.index().buckets);
  for (std::size_t first = 0; first < expected.iterations(); first += block) {
    const std::size_t count = std::min(block, expected.iterations() - first);
    require_same(expected.rows(first, count), found.rows(first, count),
                 fmt::format("iterations {} to {}", first, first + count - 1));
  }
}

std::unique_ptr<RunReader> open_whole(const fs::path& journal, const WholeJournal& written) {
  std::unique_ptr<JournalRun> run;
  try {
    run = std::make_unique<JournalRun>(journal);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kBadData) throw;
    throw Error(ExitCode::kInputOutput, error.what(), kCheckDisk);
  }
  const auto iterations = static_cast<std::int64_t>(run->iterations());
  if (iterations == written.iterations && run->status() == written.status &&
      run->read_bytes() == written.bytes && run->remarks().empty())
    return run;
  throw Error(ExitCode::kInputOutput,
              fmt::format("journal '{}' is damaged at byte {}: {} of {} iterations can be read, "
                          "status {}; no run file is made of it",
                          journal.string(), run->read_bytes(), iterations, written.iterations,
                          status_name(run->status())),
              kCheckDisk);
}

void publish_run(RunReader& run, const fs::path& output) {
  TemporaryFile temporary(temporary_beside(output));
  write_hdf5(run, temporary.path());
  sync_file(temporary.path());
  require_same_run(run, *open_hdf5(temporary.path()));
  if (is_run_file(output, run.info(), RunStatus::kPartial))
    temporary.rename_to(output);
  else
    rename_to_new(temporary.path(), output,
                  "choose another --output; the journal holds the whole run");
  temporary.keep();
  sync_folder(folder_of(output));
}

namespace {

constexpr double kSyncInterval_s = 1;

fs::path path_of_new_run(fs::path output, const RunInfo& info) {
  require_recordable(info);
  require_new_run(output);
  return output;
}

/// What a killed process has left of both files. Under the lock of the journal.
void remove_leftovers(const fs::path& output) {
  remove_temporaries_beside(output);
  remove_temporaries_beside(journal_path(output));
}

/// Where a resumed run writes its file: nothing there, or its own part of before.
fs::path own_path(fs::path output, const RunInfo& info) {
  const bool exists = fs::exists(fs::symlink_status(output));
  if (exists && !is_run_file(output, info, RunStatus::kPartial))
    throw Error(ExitCode::kCannotCreate,
                fmt::format("'{}' exists and is no partial file of this run", output.string()),
                "choose another --output; a run file is never overwritten");
  return output;
}

/// Damage that shows only while the run file is made is reported like damage that shows before.
void publish_whole(const fs::path& output, const WholeJournal& written) {
  try {
    publish_run(*open_whole(journal_path(output), written), output);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kBadData) throw;
    throw Error(ExitCode::kInputOutput, error.what(), "check the disk; the journal is kept");
  }
}

void remove_journal(const fs::path& output) {
  const auto journal = journal_path(output);
  if (::unlink(journal.c_str()) != 0)
    throw Error(ExitCode::kInputOutput,
                fmt::format("cannot remove '{}': {}", journal.string(), errno_text()),
                "the run file is complete; remove the journal by hand");
  sync_folder(folder_of(output));
}

}  // namespace

void require_new_run(const fs::path& output) {
  require_free(output, "choose another --output; a run file is never overwritten");
  const fs::path journal = journal_path(output);
  if (fs::exists(fs::symlink_status(journal)))
    throw Error(ExitCode::kCannotCreate,
                fmt::format("'{}' exists: a job writes it now, or was killed", journal.string()),
                "gradsync-train --resume auto continues a training that was stopped or killed; "
                "else choose another --output, or read it with gradsync-report and remove it");
}

Recorder::Recorder(fs::path output, const RunInfo& info)
    : output_(path_of_new_run(std::move(output), info)),
      ranks_(info.topology.size()),
      journal_(journal_path(output_), encode(info)) {
  remove_leftovers(output_);
}

Recorder::Recorder(const fs::path& output, const ResumeRow& from)
    : Recorder(output, JournalRun(journal_path(output)).info(), from) {}

Recorder::Recorder(fs::path output, const RunInfo& info, const ResumeRow& from)
    : output_(own_path(std::move(output), info)),
      ranks_(info.topology.size()),
      journal_(JournalWriter::append_to(journal_path(output_))),
      written_(from.iteration),
      acknowledged_(from.iteration) {
  remove_leftovers(output_);
  // Under the lock: no other process appends now.
  const JournalRun run(journal_.path());
  if (run.iterations_at(from.journal_bytes) != from.iteration)
    throw Error(ExitCode::kBadData,
                fmt::format("the first {} bytes of '{}' do not hold the {} iterations before the "
                            "checkpoint",
                            from.journal_bytes, journal_.path().string(), from.iteration));
  journal_.cut_to(run.read_bytes());
  journal_.append(RecordType::kResume, encode(from));
  sync();
}

void Recorder::append(RecordType type, const std::vector<std::byte>& payload) {
  journal_.append(type, payload);
  written_ += type == RecordType::kIteration ? 1 : 0;
  if (since_sync_.elapsed_s() >= kSyncInterval_s) sync();
}

void Recorder::sync() {
  journal_.sync();
  acknowledged_ = written_;
  since_sync_.restart_s();
}

std::int64_t Recorder::durable_bytes() {
  sync();
  return journal_.bytes();
}

void Recorder::end(RunStatus status) {
  if (std::exchange(ended_, true)) return;
  journal_.append(RecordType::kEnd, encode(RunEnd{status, utc_now()}));
  sync();
}

void Recorder::finish(RunStatus status) {
  end(status);
  publish_whole(output_, {written_, status, journal_.bytes()});
  if (status != RunStatus::kPartial) remove_journal(output_);
}

bool is_published(const fs::path& output) {
  const auto path = journal_path(output);
  return fs::exists(output) && found_in(path, [&] {
           return is_run_file(output, JournalRun(path).info(), RunStatus::kComplete);
         });
}

bool holds_complete_run(const fs::path& output) {
  const auto path = journal_path(output);
  return found_in(path, [&] { return JournalRun(path).is_complete(); });
}

void finish_interrupted(const fs::path& output) {
  const JournalWriter locked = JournalWriter::append_to(journal_path(output));
  remove_leftovers(output);
  JournalRun run(locked.path());
  if (is_run_file(output, run.info(), RunStatus::kComplete))
    require_same_run(run, *open_hdf5(output));
  else
    publish_whole(output, {static_cast<std::int64_t>(run.iterations()), RunStatus::kComplete,
                           locked.bytes()});
  remove_journal(output);
}

}  // namespace gradsync
