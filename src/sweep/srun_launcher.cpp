#include "sweep/srun_launcher.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/parse.h"
#include "sweep/local_launcher.h"

namespace gradsync::sweep {

namespace {

// A rank that leaves ends the step at once if it failed, and after a minute if it did not.
const std::vector<std::string> kStep = {"srun", "--mpi=pmix", "--kill-on-bad-exit=1", "--wait=60",
                                        "--cpu-bind=cores"};

// Slurm's other fence, the tree, lets a rank leave MPI_Init before all are ready, and its first
// message crashes those that are not: docs/slurm.md. Whoever sets the variable knows better.
std::vector<std::string> step_environment() {
  const char* const variable = "SLURM_PMIX_FENCE";
  if (std::getenv(variable) != nullptr) return {};
  return {std::string(variable) + "=ring"};
}

}  // namespace

std::vector<std::string> gpu_option(const std::string& request, std::int64_t gpus) {
  if (request == "none") return {};
  if (request == "gpus-per-node") return {fmt::format("--gpus-per-node={}", gpus)};
  if (request == "gres" || (request.starts_with("gres:") && request.size() > 5))
    return {fmt::format("--gres=gpu{}:{}", request.substr(4), gpus)};
  throw Error(ExitCode::kUsage,
              fmt::format("--gpu-request: \"{}\" is no way to request GPUs", request),
              "give gpus-per-node, gres, gres:TYPE or none");
}

SrunLauncher::SrunLauncher(std::filesystem::path trainer, std::vector<std::string> srun_options,
                           Allocation allocation, std::int64_t ranks_per_node,
                           std::string gpu_request, StopRequests stop_requests)
    : trainer_(std::move(trainer)),
      srun_options_(std::move(srun_options)),
      allocation_(std::move(allocation)),
      ranks_per_node_(ranks_per_node > 0 ? ranks_per_node : allocation_.ranks_per_node),
      gpu_request_(std::move(gpu_request)),
      stop_requests_(std::move(stop_requests)) {
  gpu_option(gpu_request_, 1);
}

Shape SrunLauncher::shape(const GridCell& cell) const {
  return shape_of(cell.ranks, ranks_per_node_);
}

// An array task for a cell of one rank has the cores of one, whatever other cells put on a node.
std::int64_t SrunLauncher::most_per_node() const {
  const std::int64_t asked = allocation_.most_ranks_per_node;
  return asked > 0 ? std::min(asked, ranks_per_node_) : ranks_per_node_;
}

std::int64_t SrunLauncher::cpus_per_rank() const {
  const std::int64_t most = allocation_.cpus_per_node / most_per_node();
  return std::max<std::int64_t>(1, std::min(allocation_.cpus_per_rank, most));
}

void SrunLauncher::require_room(const GridCell& cell) const {
  const Shape needed = shape(cell);
  if (needed.nodes > allocation_.nodes || needed.ranks_per_node > most_per_node())
    throw Error(
        ExitCode::kEnvironment,
        fmt::format("cell {}: {} do not fit the allocation (job {}): {} with {} on each", cell.name,
                    count_text(cell.ranks, "rank"), allocation_.job,
                    count_text(allocation_.nodes, "node"), count_text(most_per_node(), "rank")),
        fmt::format("request --nodes={} --ntasks-per-node={}, or exclude the cell with --set "
                    "exclude=ranks={}",
                    needed.nodes, needed.ranks_per_node, cell.ranks));
  if (allocation_.gpus_per_node > 0 && needed.ranks_per_node > allocation_.gpus_per_node)
    throw Error(ExitCode::kEnvironment,
                fmt::format("cell {}: {} on a node that has {} in the allocation (job {})",
                            cell.name, count_text(needed.ranks_per_node, "rank"),
                            count_text(allocation_.gpus_per_node, "GPU"), allocation_.job),
                fmt::format("request {}, or give fewer ranks a node with --ranks-per-node",
                            fmt::join(gpu_option(gpu_request_, needed.ranks_per_node), "")));
}

LaunchCommand SrunLauncher::command(const GridCell& cell, const CellFiles& files) const {
  const Shape needed = shape(cell);
  LaunchCommand command{step_environment(), kStep};
  append(command.args, {"--job-name=" + cell.name, fmt::format("--nodes={}", needed.nodes),
                        fmt::format("--ntasks={}", cell.ranks),
                        fmt::format("--ntasks-per-node={}", needed.ranks_per_node),
                        fmt::format("--cpus-per-task={}", cpus_per_rank())});
  if (allocation_.gpus_per_node > 0)
    append(command.args, gpu_option(gpu_request_, needed.ranks_per_node));
  append(command.args, srun_options_);
  append(command.args, trainer_command(trainer_, cell, files, cpus_per_rank()));
  return command;
}

ProcessResult SrunLauncher::launch(const GridCell& cell, const CellFiles& files) {
  return run_stoppable(command(cell, files), files, stop_requests_);
}

}  // namespace gradsync::sweep
