#pragma once

#include <filesystem>
#include <string>

#include "support/file.h"
#include "support/process.h"
#include "sweep/launcher.h"

namespace gradsync {

enum class CellState { kMissing, kPartial, kDone, kFailed };

/// Done: <cell>.h5 is there and no journal. Partial: its journal is there, a run that was stopped
/// or killed. Failed: <cell>.failed.json is there, whatever else is.
CellState cell_state(const CellFiles& files);

/// How a cell failed.
struct CellFailure {
  ProcessResult result;
  std::string message;  ///< the trainer's own words, from the log
  double duration_s = 0;
};

/// Writes <cell>.failed.json: {cell, exit_code, signal, message, log, time, duration_s}.
void record_failure(const CellFiles& files, const GridCell& cell, const CellFailure& failure);

/// The message of a <cell>.failed.json; "" if there is none.
std::string recorded_message(const CellFiles& files);

/// Makes room for a new run: what an earlier one left is renamed, never deleted: its journal to
/// <cell>.interrupted-N.journal, a run file of a failed run to <cell>.interrupted-N.run,
/// checkpoints to <cell>.interrupted-N.checkpoints.
void set_aside_leftovers(const std::filesystem::path& folder, const GridCell& cell);

/// The last error that `program` printed ("program: …" and its indented lines), else the last three
/// lines that say anything.
std::string last_error(const std::string& log, const std::string& program);

/// Throws Error kUsage if the folder holds another grid, naming what differs, or run files of no
/// grid; kBadData if its grid.json is damaged. A missing folder is fine. Writes nothing.
void require_same_grid(const std::filesystem::path& folder, const Job& job);

/// Whether a sweep runs the whole grid or a single cell, beside sweeps that run others.
enum class FolderUse { kWholeGrid, kOneCell };

/// The results folder of a sweep in progress: made if missing, locked against a second sweep (the
/// lock outlives a killed sweep for as long as its mpirun runs), with the grid in grid.json.
class ResultsFolder {
 public:
  /// Throws Error kCannotCreate if the folder or its lock cannot be made, kUsage if the lock is
  /// taken, and what require_same_grid throws.
  ResultsFolder(const Job& job, const Grid& grid, FolderUse use = FolderUse::kWholeGrid);

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  UniqueFd lock_;
};

}  // namespace gradsync
