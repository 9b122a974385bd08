// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "base/cli/key_values.h"
#include "base/cli/program_help.h"
#include "sweep/cell_store.h"
#include "sweep/grid.h"
#include "sweep/launcher.h"

namespace gradsync::sweep {

/// The options of gradsync-sweep itself; the job file is its one positional argument.
struct SweepOptions {
  std::filesystem::path results;              ///< empty: the job file's
  std::vector<std::string> set;               ///< KEY=VALUE, in place of the job file's keys
  std::string launcher = "auto";              ///< one of launcher_names()
  std::int64_t ranks_per_node = 0;            ///< 0: the job file's
  std::string mpirun = "mpirun";              ///< the program that starts ranks on this machine
  std::string gpu_request = "gpus-per-node";  ///< how steps of srun request GPUs
  std::string launcher_options;               ///< words for srun or mpirun, behind the job file's
  std::string cell;                           ///< the only one, by number or name; empty: all
  bool dry_run = false, status = false, list = false;
};

OptionTable sweep_option_table();

/// What stands on the command line of gradsync-sweep.
struct SweepCommand {
  ParsedCommandLine given;                ///< in front of the `--`
  SweepOptions options;                   ///< from it, the environment and the site file
  std::vector<KeyValue> trainer_options;  ///< behind it
};

/// Reads it, and what the environment and the site file add. Throws Error kUsage.
SweepCommand read_sweep_command(int argc, const char* const* argv);

ProgramHelp sweep_help();

}  // namespace gradsync::sweep

namespace gradsync {
class ProgramOutput;
}

namespace gradsync::sweep {

/// What a command line asks for. The job file is read once.
struct Plan {
  SweepCommand command;
  Job job;
  FolderGrid there;  ///< the job's grid in its results folder

  /// All cells, or those of the job that has the one of --cell. Throws Error kUsage if it is not in
  /// the grid.
  std::vector<GridCell> chosen_cells() const;
  /// Chosen cells that a sweep would start: neither settled nor, noted in the folder, too large
  /// for the memory in which a smaller batch did not fit.
  std::vector<GridCell> cells_to_run() const;
};

/// Reads the job file and the results folder. Throws Error kUsage for a misspelled GRADSYNC_*
/// variable, and what read_job, expand and grid_in_folder throw.
Plan plan_of(const SweepCommand& command);

/// Runs the chosen cells that are not settled, and prints the tables of a whole grid. `command`
/// continues it. Returns 0, or 1 if the report failed; throws what require_room, make_launcher,
/// run_grid and require_complete throw.
int run_plan(const Plan& plan, const std::string& command, const StopRequests& requests,
             ProgramOutput& output);

/// How a run failed that ended with `result` and printed `log`. The message is the trainer's last
/// error, else the launcher's about a rank that ended, else the last three lines. It ran out of
/// memory if it ended with kOutOfMemory, or if it was killed and the kernel counted such an end on
/// this host in the meantime (`kernel_counted`) or Slurm's words about it are in the log: a kill
/// without these signs may have had any cause.
CellFailure failure_of(const ProcessResult& result, std::int64_t kernel_counted,
                       const std::string& log);

/// How a grid ended.
struct GridOutcome {
  struct Failed {
    std::string cell, message;
  };
  std::size_t already = 0;  ///< complete before this sweep
  std::size_t done = 0;     ///< run now
  std::vector<Failed> failed;
  std::vector<Failed> too_large;  ///< out of memory, now or before, and what was not run for it
  bool stopped = false;  ///< on request, with cells left over; `stopped_cell` may have been running
  std::string stopped_cell;
};

/// Throws what `launcher.require_room` throws, if one of the cells that are not complete does not
/// fit where it would run. Writes nothing.
void require_room(const std::vector<GridCell>& cells, const std::filesystem::path& folder,
                  const Launcher& launcher);

/// Runs the cells that are not complete, job by job in order, one line a job on `progress`. A cell
/// that fails is recorded in the folder and the grid continues; one that succeeds loses its earlier
/// record. Contenders that do not fit the memory together are run one by one. A cell that runs out
/// of memory is a result: larger batches of cells of `grid` that differ in the batch alone are
/// recorded as not run, now and in later sweeps. It is tried again once its record is gone. A
/// request to stop, to us or to the run (which then ends with exit code 75), ends the grid.
/// `folder` is a ResultsFolder's. Throws Error if cells cannot be started or recorded at all.
GridOutcome run_grid(const std::vector<GridCell>& cells, const std::vector<GridCell>& grid,
                     const std::filesystem::path& folder, Launcher& launcher,
                     const StopRequests& stop_requests, std::ostream& progress);

/// What became of `all` cells.
void print_summary(std::ostream& out, const GridOutcome& outcome, std::size_t all);

/// Throws Error, with `command` to continue, if the grid was stopped (kStoppedEarly) or cells
/// failed (kCheckFailed).
void require_complete(const GridOutcome& outcome, std::size_t all, const std::string& command);

}  // namespace gradsync::sweep
