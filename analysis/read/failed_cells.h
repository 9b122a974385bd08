#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"

namespace gradsync::report {

/// What a file does not say is shown as "?".
inline std::string or_unknown(const std::string& text) {
  return text.empty() ? "?" : text;
}

/// A cell of a sweep that ended without a run: <cell>.failed.json, with what grid.json beside it
/// says of its options. What the files do not say is empty, "?" or 0, as in Run.
struct FailedCell {
  std::filesystem::path path;
  std::string cell;
  std::string mode, model;
  std::int64_t ranks = 0, batch_per_rank = 0, batch_global = 0;
  int exit_code = 0;
  std::string kind;     ///< "failed", "out of memory" or "not run"; empty in older records
  std::string message;  ///< the first line of the trainer's own words, or why it was not run

  /// "OUT OF MEMORY (exit code 81)", "FAILED (exit code 86): hang", or why it was not run.
  std::string verdict() const;
  /// The trainer said so, or the kernel ended it for want of memory.
  bool out_of_memory() const {
    return kind == "out of memory" || exit_code == static_cast<int>(ExitCode::kOutOfMemory);
  }
  /// A smaller batch ran out of memory.
  bool not_run() const { return kind == "not run"; }
};

/// The failures recorded in `places` (folders, searched through, and *.failed.json themselves), in
/// order of path. Files that are damaged are passed over with a line in `remarks`.
std::vector<FailedCell> find_failed_cells(const std::vector<std::string>& places,
                                          std::vector<std::string>& remarks);

/// Whether a path is the record of a failed cell.
bool is_failed_cell(const std::filesystem::path& path);

/// For places that hold nothing else: kBadData, with the verdict of each cell (at least one).
Error all_cells_failed(const std::vector<FailedCell>& failed);

}  // namespace gradsync::report
