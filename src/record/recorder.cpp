#include "record/recorder.h"

#include <unistd.h>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/utc_time.h"
#include "record/hdf5_run.h"
#include "record/journal.h"
#include "record/journal_run.h"
#include "record/publish.h"
#include "stats/clock.h"

namespace gradsync {

namespace {

constexpr double kSyncInterval_s = 1;

std::filesystem::path free_path(std::filesystem::path output) {
  if (std::filesystem::exists(std::filesystem::symlink_status(output)))
    throw Error(ExitCode::kCannotCreate, fmt::format("'{}' exists", output.string()),
                "choose another --output; a run file is never overwritten");
  return output;
}

JournalWriter new_journal(const std::filesystem::path& path, const RunInfo& info) {
  if (std::filesystem::exists(std::filesystem::symlink_status(path)))
    throw Error(ExitCode::kCannotCreate,
                fmt::format("'{}' exists: a job writes it now, or was killed", path.string()),
                "--resume auto continues a run that was stopped or killed; else choose another "
                "--output, or read it with gradsync-report and remove it");
  return JournalWriter(path, encode(info));
}

/// What a killed process has left of both files. Under the lock of the journal.
void remove_leftovers(const std::filesystem::path& output) {
  remove_temporaries_beside(output);
  remove_temporaries_beside(journal_path(output));
}

/// Where a resumed run writes its file: nothing there, or its own part of before.
std::filesystem::path own_path(std::filesystem::path output, const RunInfo& info) {
  const bool exists = std::filesystem::exists(std::filesystem::symlink_status(output));
  if (exists && !is_earlier_part(output, info))
    throw Error(ExitCode::kCannotCreate,
                fmt::format("'{}' exists and is no partial file of this run", output.string()),
                "choose another --output; a run file is never overwritten");
  return output;
}

/// Damage that shows only while the run file is made is no other than that which shows before.
void publish_whole(const std::filesystem::path& output, const WholeJournal& written) {
  try {
    publish_run(*open_whole(journal_path(output), written), output);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kBadData) throw;
    throw Error(ExitCode::kInputOutput, error.what(), "check the disk; the journal is kept");
  }
}

void remove_journal(const std::filesystem::path& output) {
  const auto journal = journal_path(output);
  if (::unlink(journal.c_str()) != 0)
    throw Error(ExitCode::kInputOutput,
                fmt::format("cannot remove '{}': {}", journal.string(), errno_text()),
                "the run file is complete; remove the journal by hand");
  sync_folder(folder_of(output));
}

}  // namespace

struct Recorder::State {
  State(std::filesystem::path output_path, const RunInfo& info)
      : output(free_path(std::move(output_path))),
        ranks(info.topology.size()),
        journal(new_journal(journal_path(output), info)) {
    remove_leftovers(output);
  }

  State(std::filesystem::path output_path, const RunInfo& info, std::int64_t iterations)
      : output(own_path(std::move(output_path), info)),
        ranks(info.topology.size()),
        journal(JournalWriter::append_to(journal_path(output))),
        written(iterations),
        acknowledged(iterations) {
    remove_leftovers(output);
  }

  void append(RecordType type, const std::vector<std::byte>& payload) {
    journal.append(type, payload);
    written += type == RecordType::kIteration ? 1 : 0;
    if (since_sync.elapsed_s() >= kSyncInterval_s) sync();
  }

  void sync() {
    journal.sync();
    acknowledged = written;
    since_sync.restart_s();
  }

  std::filesystem::path output;
  std::size_t ranks;
  JournalWriter journal;
  Stopwatch since_sync;
  std::int64_t written = 0;
  std::int64_t acknowledged = 0;
};

Recorder::Recorder(std::filesystem::path output, const RunInfo& info) {
  require_recordable(info);
  state_ = std::make_unique<State>(std::move(output), info);
}

Recorder::Recorder(std::filesystem::path output, const ResumeRow& from) {
  const auto path = journal_path(output);
  const auto info = open_journal(path)->info();
  state_ = std::make_unique<State>(std::move(output), info, from.iteration);
  // Under the lock: no other process appends now.
  const auto run = open_journal(path);
  if (run->iterations_at(from.journal_bytes) != from.iteration)
    throw Error(ExitCode::kBadData,
                fmt::format("the first {} bytes of '{}' do not hold the {} iterations before the "
                            "checkpoint",
                            from.journal_bytes, path.string(), from.iteration));
  state_->journal.cut_to(run->read_bytes());
  state_->journal.append(RecordType::kResume, encode(from));
  state_->sync();
}

Recorder::~Recorder() = default;

void Recorder::add(const IterationRow& row) {
  require_recordable(row, state_->ranks);
  state_->append(RecordType::kIteration, encode(row));
}

std::size_t Recorder::ranks() const {
  return state_->ranks;
}

void Recorder::append(RecordType type, const std::vector<std::byte>& payload) {
  state_->append(type, payload);
}

void Recorder::sync() {
  state_->sync();
}

std::int64_t Recorder::durable_bytes() {
  state_->sync();
  return state_->journal.bytes();
}

std::int64_t Recorder::acknowledged() const {
  return state_->acknowledged;
}

void Recorder::finish(RunStatus status) {
  state_->journal.append(RecordType::kEnd, encode(RunEnd{status, utc_now()}));
  state_->sync();
  publish_whole(state_->output, {state_->written, status, state_->journal.bytes()});
  if (status != RunStatus::kPartial) remove_journal(state_->output);
}

bool is_published(const std::filesystem::path& output) {
  const auto path = journal_path(output);
  if (!std::filesystem::exists(path) || !std::filesystem::exists(output)) return false;
  try {
    return is_complete_file(output, open_journal(path)->info());
  } catch (const Error&) {
    return false;
  }
}

bool holds_complete_run(const std::filesystem::path& output) {
  const auto path = journal_path(output);
  if (!std::filesystem::exists(path)) return false;
  try {
    return holds_complete_run(*open_journal(path));
  } catch (const Error&) {
    return false;
  }
}

void finish_interrupted(const std::filesystem::path& output) {
  const JournalWriter locked = JournalWriter::append_to(journal_path(output));
  remove_leftovers(output);
  const auto run = open_journal(locked.path());
  if (is_complete_file(output, run->info()))
    require_same_run(*run, *open_hdf5(output));
  else
    publish_whole(output, {static_cast<std::int64_t>(run->iterations()), RunStatus::kComplete,
                           locked.bytes()});
  remove_journal(output);
}

}  // namespace gradsync
