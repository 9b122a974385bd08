#pragma once

#include <filesystem>

#include "record/reader.h"

namespace gradsync {

/// Makes the run file `output` from `run`: a temporary file in the same folder, read back and
/// compared with `run` in every field, fsync, then the name, then fsync of the folder. The name
/// must not exist, or be a partial file of the same run, which is replaced. Throws Error
/// kCannotCreate or kInputOutput; no temporary and no half-written file remains then.
void publish_run(RunReader& run, const std::filesystem::path& output);

/// Whether `file` is what an earlier stop of the run that `info` describes has published.
bool is_earlier_part(const std::filesystem::path& file, const RunInfo& info);

/// Gives `from` the name `to` unless something has that name. Throws Error kCannotCreate.
void rename_to_new(const std::filesystem::path& from, const std::filesystem::path& to);

/// Throws Error kInputOutput naming the first difference between two readers of one run.
void require_same_run(RunReader& expected, RunReader& found);

}  // namespace gradsync
