#include "record/recorder.h"

#include <unistd.h>

#include <fmt/format.h>

#include "record/journal.h"
#include "record/journal_payload.h"
#include "record/journal_run.h"
#include "record/publish.h"
#include "record/quantization_payload.h"
#include "support/error.h"
#include "support/file.h"
#include "support/utc_time.h"
#include "timing/clock.h"

namespace gradsync {

namespace {

constexpr double kSyncInterval_s = 1;

std::filesystem::path free_path(std::filesystem::path output) {
  if (std::filesystem::exists(std::filesystem::symlink_status(output)))
    throw Error(ExitCode::kCannotCreate, fmt::format("'{}' exists", output.string()),
                "choose another --output; a run file is never overwritten");
  return output;
}

JournalWriter new_journal(const std::filesystem::path& path) {
  if (std::filesystem::exists(std::filesystem::symlink_status(path)))
    throw Error(ExitCode::kCannotCreate,
                fmt::format("'{}' exists: a job writes it now, or was killed", path.string()),
                "--resume auto goes on with a run that was stopped or killed; else choose another "
                "--output, or read it with gradsync-report and remove it");
  return JournalWriter(path);
}

/// What the journal of a run to go on with says of it.
RunInfo info_in(const std::filesystem::path& journal) {
  JournalReader reader(journal);
  const auto record = reader.next();
  auto info =
      record && record->type == RecordType::kInfo ? decode_info(record->payload) : std::nullopt;
  if (info) return *std::move(info);
  throw Error(ExitCode::kBadData,
              fmt::format("'{}' does not say which run it is of", journal.string()),
              "remove it, and start the run anew");
}

/// Where a run that goes on writes its file: nothing there, or its own part of before.
std::filesystem::path own_path(std::filesystem::path output, const RunInfo& info) {
  const bool exists = std::filesystem::exists(std::filesystem::symlink_status(output));
  if (exists && !is_earlier_part(output, info))
    throw Error(ExitCode::kCannotCreate,
                fmt::format("'{}' exists and is no partial file of this run", output.string()),
                "choose another --output; a run file is never overwritten");
  return output;
}

}  // namespace

struct Recorder::State {
  State(std::filesystem::path output_path, const RunInfo& info)
      : output(free_path(std::move(output_path))),
        ranks(info.topology.size()),
        journal(new_journal(journal_path(output))) {}

  State(std::filesystem::path output_path, const RunInfo& info, std::int64_t iterations)
      : output(own_path(std::move(output_path), info)),
        ranks(info.topology.size()),
        journal(JournalWriter::append_to(journal_path(output))),
        written(iterations),
        acknowledged(iterations) {}

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
  try {
    state_->journal.append(RecordType::kInfo, encode(info));
    state_->sync();
    sync_folder(folder_of(state_->output));
  } catch (...) {
    // A journal that does not even say which run it is helps nobody and blocks the next attempt.
    ::unlink(state_->journal.path().c_str());
    throw;
  }
}

Recorder::Recorder(std::filesystem::path output, const ResumeRow& from) {
  const auto journal = journal_path(output);
  state_ = std::make_unique<State>(std::move(output), info_in(journal), from.iteration);
  if (state_->journal.bytes() < from.journal_bytes)
    throw Error(ExitCode::kBadData,
                fmt::format("'{}' has {} sound bytes, the checkpoint goes on "
                            "from byte {}",
                            journal.string(), state_->journal.bytes(), from.journal_bytes));
  state_->journal.append(RecordType::kResume, encode(from));
  state_->sync();
}

Recorder::~Recorder() = default;

void Recorder::add(const IterationRow& row) {
  require_recordable(row, state_->ranks);
  state_->append(RecordType::kIteration, encode(row));
}

void Recorder::add(const EpochRow& row) {
  require_recordable(row, state_->ranks);
  state_->append(RecordType::kEpoch, encode(row));
}

void Recorder::add(const VerificationRow& row) {
  state_->append(RecordType::kVerification, encode(row));
}

void Recorder::add(const CalibrationRow& row) {
  state_->append(RecordType::kCalibration, encode(row));
}

void Recorder::add(const WindowRow& row) {
  require_recordable(row, state_->ranks);
  state_->append(RecordType::kWindow, encode(row));
}

void Recorder::add(const ClockRow& row) {
  require_recordable(row, state_->ranks);
  state_->append(RecordType::kClock, encode(row));
}

void Recorder::add(const DeviceSample& sample) {
  state_->append(RecordType::kDeviceSample, encode(sample));
}

void Recorder::add(const TrafficRow& row) {
  require_recordable(row, state_->ranks);
  state_->append(RecordType::kTraffic, encode(row));
}

void Recorder::add(const ReplicaRow& row) {
  require_recordable(row, state_->ranks);
  state_->append(RecordType::kReplica, encode(row));
}

void Recorder::add(const Quantization& quantization) {
  require_recordable(quantization);
  state_->append(RecordType::kQuantization, encode(quantization));
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
  const auto& journal = state_->journal.path();
  publish_run(*open_journal(journal), state_->output);
  if (status == RunStatus::kPartial) return;
  if (::unlink(journal.c_str()) != 0)
    throw Error(ExitCode::kInputOutput,
                fmt::format("cannot remove '{}': {}", journal.string(), errno_text()),
                "the run file is complete; remove the journal by hand");
}

}  // namespace gradsync
