#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "sweep/grid.h"
#include "sweep/sweep_options.h"

namespace gradsync::sweep {

/// Gives this process the data folder of slurm/site, as the tasks of an array get it, unless
/// GRADSYNC_DATA is set: it is part of the grid. Throws Error kEnvironment if there is no slurm/
/// beside the build, below the prefix of make install or in GRADSYNC_HOME, kUsage if slurm/site is
/// wrong.
void take_site_data();

/// Submits the chosen cells that are not settled with slurm/submit: an array a shape, each to begin
/// when those before it have ended; one line a job on `out`. `grid` is in the order of the folder.
/// With --dry-run prints the commands instead. Returns the exit code. Throws what ResultsFolder and
/// array_jobs throw, and Error kEnvironment, naming what was submitted, if sbatch refuses one.
int submit_grid(const Job& job, const Grid& grid, const SweepCommand& command, std::ostream& out);

/// Cells of one shape: a job array of the template slurm/grid.sbatch.
struct ArrayJob {
  std::string what;                ///< "2 nodes × 4 ranks, cells 1-3,7"
  std::vector<std::string> words;  ///< of slurm/submit: sbatch's options, "grid", a task's words
};

/// The folder, absolute, of the logs of tasks: <results>/slurm. sbatch does not make it.
std::filesystem::path log_folder(const Job& job);

/// One array for all cells of a shape (nodes, ranks on each, threads): a cell a task, by its number
/// in the folder, `at_once` tasks at a time. The job's sbatch-options
/// come behind ours, in whose place they so stand; the tasks get what makes `command` this grid.
/// Throws Error kUsage if ranks per node are not known, or sbatch cannot write logs to the folder.
std::vector<ArrayJob> array_jobs(const Job& job, const std::vector<GridCell>& cells,
                                 const std::string& at_once, const SweepCommand& command);

}  // namespace gradsync::sweep
