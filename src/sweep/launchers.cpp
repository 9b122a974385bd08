#include "sweep/launchers.h"

#include <algorithm>

#include "support/error.h"
#include "sweep/allocation.h"
#include "sweep/local_launcher.h"
#include "sweep/srun_launcher.h"

namespace gradsync::sweep {

namespace {

std::int64_t most_ranks(const Grid& grid) {
  std::int64_t most = 1;
  for (const auto& cell : grid.cells)
    most = std::max(most, cell.ranks);
  return most;
}

}  // namespace

const std::vector<std::string>& launcher_names() {
  static const std::vector<std::string> names = {"auto", "local", "srun", "slurm"};
  return names;
}

std::string resolved_launcher(const std::string& name) {
  if (name != "auto") return name;
  return current_allocation() ? "srun" : "local";
}

std::unique_ptr<Launcher> make_launcher(const std::string& name, const Job& job, const Grid& grid,
                                        StopRequests stop_requests) {
  const auto words = [&](std::vector<std::string> options) {
    append(options, job.launcher_options);
    return options;
  };
  const auto trainer = program_beside_us("gradsync-train");
  if (name == "local")
    return std::make_unique<LocalLauncher>(trainer, words(job.mpirun_options), most_ranks(grid),
                                           std::move(stop_requests));
  const auto allocation = current_allocation();
  if (!allocation)
    throw Error(ExitCode::kEnvironment,
                "--launcher srun needs a Slurm job to run in, and SLURM_JOB_ID is not set",
                "start it inside sbatch or salloc, or run here with --launcher local");
  return std::make_unique<SrunLauncher>(trainer, words(job.srun_options), *allocation,
                                        job.ranks_per_node, std::move(stop_requests));
}

}  // namespace gradsync::sweep
