#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "sweep/cell_store.h"
#include "sweep/launcher.h"

namespace gradsync::sweep {

/// The last error that `program` printed ("program: …" and its indented lines), else the first line
/// in which srun or mpirun reports a rank that ended, else the last three lines that say anything.
std::string last_error(const std::string& log, const std::string& program);

/// Whether the kernel ended the run because memory ran out: the run was killed, and the
/// kernel counted such an end on this host in the meantime or Slurm's words about it are in the
/// log. A kill without these signs may have had any cause.
bool killed_for_memory(const ProcessResult& result, std::int64_t kernel_counted,
                       const std::string& log);

/// Whether the run was killed from outside: by signal 9, or with what launchers make of it, exit
/// code 137 (9 of MPICH's, and of Open MPI's where the connection to the rank ended before the
/// rank; 255 of Intel's with its message in the log).
bool was_killed(const ProcessResult& result, const std::string& log);

/// How many processes the kernel has ended for want of memory since the host started, from
/// /proc/vmstat; 0 where it does not say.
std::int64_t kernel_memory_kills();

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

/// Runs the cells that are not complete, in order, one line a cell on `progress`. A cell that fails
/// is recorded in the folder and the grid continues; one that succeeds loses its earlier record.
/// One that runs out of memory is a result: it ends its ladder (`ladders` holds those that ended
/// before), and larger batches are recorded as not run. It is tried again once its record is gone.
/// A request to stop, to us or to the run (which then ends with exit code 75), ends the grid.
/// `folder` is a ResultsFolder's. Throws Error if cells cannot be started or recorded at all.
GridOutcome run_grid(const std::vector<GridCell>& cells, const std::filesystem::path& folder,
                     Launcher& launcher, BatchLadders ladders, const StopRequests& stop_requests,
                     std::ostream& progress);

/// What became of `all` cells.
void print_summary(std::ostream& out, const GridOutcome& outcome, std::size_t all);

/// Throws Error, with `command` to continue, if the grid was stopped (kStoppedEarly) or cells
/// failed (kCheckFailed).
void require_complete(const GridOutcome& outcome, std::size_t all, const std::string& command);

}  // namespace gradsync::sweep
