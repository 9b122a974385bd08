#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sweep/job_file.h"
#include "sweep/launcher.h"

namespace gradsync::sweep {

/// The names that --launcher takes.
const std::vector<std::string>& launcher_names();

/// What `auto` stands for: srun inside a Slurm job, local elsewhere; any other name is itself.
std::string resolved_launcher(const std::string& name);

/// The launcher of a resolved name, local or srun (slurm starts nothing itself, see submit_grid.h).
/// Throws Error kEnvironment for srun outside a Slurm job.
std::unique_ptr<Launcher> make_launcher(const std::string& name, const Job& job, const Grid& grid,
                                        StopRequests stop_requests);

}  // namespace gradsync::sweep
