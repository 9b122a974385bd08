#pragma once

#include <filesystem>

#include "record/reader.h"

namespace gradsync {

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

/// Whether `file` is the complete run file of the run that `info` describes.
bool is_complete_file(const std::filesystem::path& file, const RunInfo& info);

/// Whether `file` is what an earlier stop of the run that `info` describes has published.
bool is_earlier_part(const std::filesystem::path& file, const RunInfo& info);

/// Gives `from` the name `to` unless something has that name. Throws Error kCannotCreate with
/// `fix`, kInputOutput where the disk is full or broken.
void rename_to_new(const std::filesystem::path& from, const std::filesystem::path& to,
                   const std::string& fix);

/// Throws Error kInputOutput naming the first difference between two readers of one run.
void require_same_run(RunReader& expected, RunReader& found);

}  // namespace gradsync
