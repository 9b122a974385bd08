// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/process.h"
#include "base/table.h"
#include "sweep/grid.h"

/// What the results folder holds of each cell: its files, its state, who runs it, how it failed and
/// how far it is.
namespace gradsync::sweep {

/// The files of one cell in the results folder.
struct CellFiles {
  std::filesystem::path run;          ///< <cell>.h5
  std::filesystem::path journal;      ///< <cell>.h5.journal, while the run is not complete
  std::filesystem::path log;          ///< <cell>.log, what the run printed
  std::filesystem::path failure;      ///< <cell>.failed.json
  std::filesystem::path running;      ///< <cell>.running, while it runs: see CellLock
  std::filesystem::path checkpoints;  ///< <cell>.checkpoints, a folder, of an unfinished run
};

CellFiles cell_files(const std::filesystem::path& folder, const GridCell& cell);

/// The files of a start: those of the first cell, with the run files of all of them, in the form
/// of gradsync-train --output.
CellFiles job_files(const std::filesystem::path& folder, const CellJob& cells);

/// Whether the trainer would find a checkpoint of the cell and may resume from it, or a journal of
/// the complete run that it only has to publish.
bool is_resumable(const GridCell& cell, const CellFiles& files);

/// One start of the trainer.
struct CellStart {
  CellJob cells;
  bool resumes = false;  ///< in the files that are there; else they are set aside
};

/// The starts that complete the cells of a job, of which none is settled. An experiment that was
/// interrupted resumes with the contenders that it had, if each of them and the control can; so
/// does a run that was one of its own. The others begin together.
std::vector<CellStart> starts_of(const std::filesystem::path& folder, const CellJob& cells);

/// Makes the run files of those of `cells`, and of their controls, whose journals hold complete
/// runs of an experiment of which another cell in `grid` has its file: all of it had ended when its
/// job was killed, or found the disk full. Throws as finish_interrupted does.
void publish_ended(const std::filesystem::path& folder, const std::vector<GridCell>& cells,
                   const std::vector<GridCell>& grid);

enum class CellState {
  kMissing,
  kRunning,      ///< a process holds its lock
  kPartial,      ///< its journal is there: a run that was stopped or killed
  kDone,         ///< <cell>.h5 is there and complete: no journal, or one that was to be removed
  kFailed,       ///< <cell>.failed.json is there, whatever else is; so for the next two
  kOutOfMemory,  ///< a result: the batch does not fit
  kNotRun        ///< not tried: a smaller batch did not fit
};

/// "missing", "running", "partial", "done", "failed", "out of memory", "not run".
std::string state_text(CellState state);

/// Why a cell has no run.
struct CellFailure {
  CellState kind = CellState::kFailed;  ///< or kOutOfMemory, kNotRun
  ProcessResult result;                 ///< of no meaning for kNotRun
  std::string message;                  ///< the trainer's own words, from the log
  double duration_s = 0;
};

/// Writes <cell>.failed.json: {cell, kind, exit_code, signal, message, log, time, duration_s}.
void record_failure(const CellFiles& files, const GridCell& cell, const CellFailure& failure);

/// What <cell>.failed.json says; nothing if there is none. One that is damaged is a failure without
/// a message.
std::optional<CellFailure> recorded_failure(const CellFiles& files);

CellState cell_state(const CellFiles& files);

/// Whether the run file is there, and no journal of a run that has not ended.
bool is_complete(const CellFiles& files);

/// Done or out of memory: there is nothing to run any more.
bool is_settled(CellState state);

/// While it lives, the cell is ours to run: <cell>.running is there and locked, and says on which
/// host and by which process. mpirun and srun inherit the lock, so that a run which outlives its
/// sweep keeps it.
class CellLock {
 public:
  /// Throws Error kStoppedEarly if another process runs the cell, kCannotCreate if the file cannot
  /// be made.
  explicit CellLock(const CellFiles& files);
  ~CellLock();
  CellLock(const CellLock&) = delete;
  CellLock& operator=(const CellLock&) = delete;

 private:
  std::filesystem::path path_;
  UniqueFd lock_;
};

/// Whether a process runs the cell now.
bool is_running(const CellFiles& files);

/// "host n1, process 4711": which process runs the cell, or did before it was killed; empty if
/// none.
std::string runner_of(const CellFiles& files);

/// How far a cell is, from its run file or its journal, which may be growing.
struct CellProgress {
  std::string cell;
  CellState state = CellState::kMissing;
  std::int64_t iterations = 0;
  std::int64_t wanted = 0;     ///< iterations; 0: not known
  double time_s;               ///< from the start of its run to its last iteration; NaN: none
  std::int64_t shared_by = 1;  ///< cells that were trained in that time, in turn
  std::string message = {};    ///< why it failed, who runs it, or what is wrong with its file

  /// Share of its iterations that is done, 0 to 1; NaN if it is not known.
  double share() const;
};

/// The progress of all cells, in their order. How many iterations an epoch has is known from any
/// run of the folder. Never throws for a damaged file: its message says what is wrong.
std::vector<CellProgress> grid_progress(const std::vector<GridCell>& cells,
                                        const std::filesystem::path& folder);

/// Seconds until all cells that have neither ended nor failed are done, at the mean pace of those
/// that have begun; NaN if none has.
double seconds_left(const std::vector<CellProgress>& cells);

/// Iterations of the cell's whole run on a training set of so many images (0: not known); 0 if
/// they are not known.
std::int64_t iterations_wanted(const GridCell& cell, std::int64_t train_images);

/// The table of --status: a row a cell, and below it how many are in which state, how long the rest
/// will take and the folder of the results.
Table status_table(const std::string& name, const std::vector<CellProgress>& cells,
                   const std::filesystem::path& results);

/// "about 40 s left", "about 3 min left", "about 2 h left".
std::string time_left_text(double seconds);

/// What stays of a grid if its job ends now. Later work has more cells, or the same and more
/// iterations.
struct DurableProgress {
  std::int64_t cells = 0;       ///< complete runs
  std::int64_t iterations = 0;  ///< of the newest checkpoints of the others
  auto operator<=>(const DurableProgress&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// The durable progress of all runs in the folder; a missing folder holds none.
DurableProgress durable_progress(const std::filesystem::path& folder);

/// Makes room for a new run: what an earlier one left is renamed, never deleted: its journal to
/// <cell>.interrupted-N.journal, a run file of a failed run to <cell>.interrupted-N.run,
/// its folder of checkpoints to <cell>.interrupted-N.checkpoints.
void set_aside_leftovers(const std::filesystem::path& folder, const GridCell& cell);

/// Makes the folder and those above it. Throws Error kCannotCreate.
void make_folder(const std::filesystem::path& folder);

/// Whether a sweep runs the whole grid or, beside sweeps that run others, a single cell or none; or
/// submits cells, and does not know yet whether there will be a job.
enum class FolderUse { kWholeGrid, kOneCell, kSubmission };

/// The results folder of a sweep in progress: made if missing, locked against a second sweep (the
/// lock outlives a killed sweep for as long as its mpirun runs), with its cells in grid.json.
class ResultsFolder {
 public:
  /// Throws Error kCannotCreate if the folder or its lock cannot be made, kStoppedEarly if the lock
  /// is taken, and what grid_in_folder and require_same throw.
  ResultsFolder(const Job& job, const Grid& grid, FolderUse use = FolderUse::kWholeGrid);

  const std::filesystem::path& path() const { return path_; }
  /// The grid in the folder, as it is under the lock.
  const FolderGrid& there() const { return there_; }

  /// Writes grid.json, once: the constructor does, except for kSubmission.
  void record(const Job& job);

 private:
  std::filesystem::path path_;
  UniqueFd lock_, writes_;
  FolderGrid there_;
};

}  // namespace gradsync::sweep
