#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "base/cli/slurm_site.h"
#include "sweep/runner.h"

/// Both ends of a Slurm job: what is given to sbatch, and what a template of slurm/ does once its
/// job runs.
namespace gradsync::sweep {

/// The values of this site, for the templates in GRADSYNC_HOME, below the prefix of `make install`
/// or beside the build. Throws Error kEnvironment if there are none, and what read_slurm_site
/// throws.
SlurmSite this_site();

/// Gives this process the data folder of the site, as its jobs get it, unless GRADSYNC_DATA is set:
/// it is part of a grid.
void take_site_data(const SlurmSite& site);

/// slurm/submit: gives a template with the site's values to sbatch. `words` are options of sbatch,
/// the template's name and its words, or --environment, --value KEY, --print TEMPLATE. Returns the
/// exit code. Throws Error kUsage.
int submit_template(const std::vector<std::string>& words, std::ostream& out);

/// Submits the chosen cells that are not settled, one job array a shape (nodes, ranks on each,
/// threads), each to begin when those before it have ended: a cell is a task, by its number in the
/// folder. One line a job on `out`. The job's sbatch-options come behind ours, in whose place they
/// so stand. With --dry-run prints the commands instead. Returns the exit code. Throws Error kUsage
/// if ranks per node are not known or sbatch cannot write logs to the folder, kEnvironment, naming
/// what was submitted, if sbatch refuses an array, and what ResultsFolder throws.
int submit_grid(const Plan& plan, const SlurmSite& site, std::ostream& out);

/// The command with which a job array is submitted, for whoever gives its template none.
std::string array_command(const std::vector<std::string>& words);

/// The work of a template in its job: checks the allocation, describes it, looks at what the ranks
/// need, runs, and puts the job back into the queue where it met its time limit. `words` are the
/// template's name, the ranks a node that it is for (or "any"), gpu, cpu or any, grid, array,
/// quantize or calibrate, and the words of the user. Returns the exit code; docs/slurm.md has a
/// list. Throws Error before the first cell runs.
int run_in_job(const std::vector<std::string>& words);

}  // namespace gradsync::sweep
