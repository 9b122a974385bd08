#pragma once

#include <iosfwd>

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

}  // namespace gradsync::sweep
