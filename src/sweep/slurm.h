// SPDX-License-Identifier: BSD-3-Clause
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

/// What the last line of a template says of it.
struct Template {
  std::string name;            ///< "four-gpu"
  std::string ranks_per_node;  ///< that it is for, or "any"
  std::string device;          ///< "gpu", "cpu" or "any"
  std::string work;            ///< "grid", "array", "quantize" or "calibrate"
};

/// What the job of a template with a grid runs for these words: the job file, options of
/// gradsync-sweep and of gradsync-train. Sets GRADSYNC_DEVICE to what the template's ranks compute
/// on, unless that is any, and GRADSYNC_DATA to the site's data. Throws Error kUsage and what
/// plan_of and require_same throw: at the submission, where slurm/submit calls it, as in the job.
Plan plan_in_job(const Template& from, const std::vector<std::string>& words,
                 const SlurmSite& site);

/// Gives this process the data folder of the site, as its jobs get it, unless GRADSYNC_DATA is set:
/// it is part of a grid.
void take_site_data(const SlurmSite& site);

/// slurm/submit: gives a template with the site's values to sbatch, if its job could run. `words`
/// are options of sbatch, the template's name and its words, or --environment, --value KEY, --print
/// TEMPLATE, --help. Returns the exit code. Throws Error kUsage and what plan_in_job throws.
int submit_template(const std::vector<std::string>& words, std::ostream& out);

/// Submits the chosen cells that are not settled, one job array a shape (nodes, ranks on each,
/// threads): a job of cells (jobs_of) is a task, by the number of its first cell in the folder. All
/// arrays of a folder have one job name and Slurm's dependency `singleton`: each begins when those
/// before it have ended, also those of earlier submissions, which are named on stderr. One line a
/// job on `out`. The job's sbatch-options come behind ours, in whose place they so stand. With
/// --dry-run prints the commands instead. Returns the exit code. Throws Error kUsage if ranks per
/// node are not known or sbatch cannot write logs to the folder, kEnvironment, naming what was
/// submitted, if sbatch refuses an array (nothing is recorded in the folder if it was the first),
/// and what ResultsFolder throws.
int submit_grid(const Plan& plan, const SlurmSite& site, std::ostream& out);

/// The command that submits job arrays for the words of a template.
std::string array_command(const std::vector<std::string>& words);

/// A file as a command in this folder names it: relative where it is below.
std::string seen_from_here(const std::filesystem::path& file);

/// A command for the user's shell, behind the settings for this suite and for sbatch that are in
/// the environment.
std::string typed_command(const std::vector<std::string>& words);

/// The work of a template in its job: checks the allocation, describes it, looks at what the ranks
/// need, runs, and puts the job back into the queue where it met its time limit. `words` are the
/// template's name, the ranks a node that it is for (or "any"), gpu, cpu or any, grid, array,
/// quantize or calibrate, and the words of the user. Returns the exit code; docs/slurm.md has a
/// list. Throws Error before the first cell runs.
int run_in_job(const std::vector<std::string>& words);

}  // namespace gradsync::sweep
