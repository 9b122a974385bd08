// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <memory>

#include "record/journal.h"
#include "record/reader.h"
#include "stats/clock.h"

namespace gradsync {

/// Throws Error kCannotCreate unless a new run can be written to `output`: neither that nor its
/// journal is there, and its folder may be written.
void require_new_run(const std::filesystem::path& output);

/// Writes one run: rows go to `<output>.journal` as they come, `finish` builds the HDF5 file from
/// it.
///
/// One recorder a run, on rank 0, called between iterations (never inside the timed region). What
/// `acknowledged()` counts survives a kill −9 at any instant. A journal is left behind by every end
/// but a successful `finish`; gradsync-report reads it as readily as the file.
class Recorder {
 public:
  /// Creates the journal (O_EXCL) and writes `info` to it.
  /// Throws Error: kCannotCreate if `output` or its journal exists, or the folder is missing or not
  /// writable; kInputOutput if a write fails; kInternal for an `info` that no file can hold
  /// (`require_recordable`). Nothing is left behind then.
  Recorder(std::filesystem::path output, const RunInfo& info);

  /// Resumes in the journal of a run that was stopped or killed: what it holds from
  /// `from.journal_bytes` on counts no more. Throws Error: kNoInput if there is no journal,
  /// kCannotCreate if another job writes it or `output` is something else than a partial file of
  /// that run, kBadData if the journal does not hold `from.iteration` iterations in these bytes,
  /// kInputOutput. The journal is then as it was, but for what cannot be read at its end.
  Recorder(const std::filesystem::path& output, const ResumeRow& from);

  /// Append a row of an iteration or of RunLists (it must fit the run: `require_recordable`);
  /// fdatasync when the last one is at least `sync_interval_s` (1 s) old. Throw Error kInputOutput:
  /// the row is then not acknowledged, all earlier ones are kept.
  template <typename Row>
  void add(const Row& row) {
    require_recordable(row, ranks_);
    if constexpr (std::is_same_v<Row, IterationRow>)
      append(RecordType::kIteration, encode(row));
    else
      append(kRowKind<Row>.record, encode(row));
  }

  /// Forces what was added to the disk.
  void sync();

  /// Forces what was added to the disk; returns how many bytes of the journal that makes.
  std::int64_t durable_bytes();
  /// Bytes of the journal, written to disk or not.
  std::int64_t journal_bytes() const { return journal_.bytes(); }

  /// Iterations that are on the disk.
  std::int64_t acknowledged() const { return acknowledged_; }

  /// Marks the end and forces all to the disk: a complete run can be published by another process
  /// (finish_interrupted). Of several runs of a job all are ended before the first is published.
  void end(RunStatus status);

  /// Marks the end where that is not done, builds `<output>` from the journal as a temporary file,
  /// reads it back and compares every field, fsync, rename (over nothing but an earlier part of
  /// this very run). Then removes the journal, unless the run is partial: a resume continues it.
  /// Throws Error kInputOutput or kCannotCreate: a journal that does not hold all that was written,
  /// whatever byte of it is damaged, is never published. The journal is then kept, and no
  /// half-written HDF5 file remains.
  void finish(RunStatus status);

 private:
  Recorder(std::filesystem::path output, const RunInfo& info, const ResumeRow& from);
  void append(RecordType type, const std::vector<std::byte>& payload);

  std::filesystem::path output_;
  std::size_t ranks_;
  JournalWriter journal_;
  Stopwatch since_sync_;
  std::int64_t written_ = 0;
  std::int64_t acknowledged_ = 0;
  bool ended_ = false;
};

/// Whether `output` is a complete run file whose journal, there too, is of the same run: `finish`
/// was interrupted before it removed the journal.
bool is_published(const std::filesystem::path& output);

/// Whether the journal of `output` holds a complete run: `finish` was interrupted, or could not
/// make the run file.
bool holds_complete_run(const std::filesystem::path& output);

/// Does what an interrupted `finish(kComplete)` left undone: publishes the journal, unless the run
/// file is there, and removes it. Requires `holds_complete_run`. Throws as `finish` does, and
/// kCannotCreate while another job writes the journal.
void finish_interrupted(const std::filesystem::path& output);

/// Makes the run file `output` from `run`: a temporary file in the same folder, read back and
/// compared with `run` in every field, fsync, then the name, then fsync of the folder. The name
/// must not exist, or be a partial file of the same run, which is replaced. Throws Error
/// kCannotCreate or kInputOutput; no temporary and no half-written file remains then.
void publish_run(RunReader& run, const std::filesystem::path& output);

/// What a journal must hold for its run to be published.
struct WholeJournal {
  std::int64_t iterations = 0;
  RunStatus status = RunStatus::kRunning;
  std::int64_t bytes = 0;
};

/// Opens the journal of a run that is to be published. Throws Error kInputOutput, and says what is
/// missing, unless every byte of it can be read and it holds just what was written.
std::unique_ptr<RunReader> open_whole(const std::filesystem::path& journal,
                                      const WholeJournal& written);

/// Throws Error kInputOutput naming the first difference between two readers of one run.
void require_same_run(RunReader& expected, RunReader& found);

}  // namespace gradsync
