#include "sweep/local_launcher.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "support/error.h"
#include "sweep/stoppable_run.h"

namespace gradsync::sweep {

namespace {

// With the default of 5 minutes a lost node is noticed after 8.
const std::vector<std::string> kKeepAlive = {"--mca", "oob_tcp_keepalive_time",   "5",
                                             "--mca", "oob_tcp_keepalive_intvl",  "2",
                                             "--mca", "oob_tcp_keepalive_probes", "3"};

std::int64_t usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) return CPU_COUNT(&cores);
  // More cores than the fixed-size set holds.
  return std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace

LocalLauncher::LocalLauncher(std::filesystem::path trainer, std::vector<std::string> mpirun_options,
                             std::int64_t most_ranks, StopRequests stop_requests)
    : trainer_(std::move(trainer)),
      mpirun_options_(std::move(mpirun_options)),
      most_ranks_(most_ranks),
      stop_requests_(std::move(stop_requests)) {}

LaunchCommand LocalLauncher::command(const GridCell& cell, const CellFiles& files) const {
  LaunchCommand command;
  if (geteuid() == 0)
    command.environment = {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"};
  command.args = {"mpirun", "-n",     std::to_string(cell.ranks), "--oversubscribe", "--bind-to",
                  "none",   "--quiet"};
  append(command.args, kKeepAlive);
  append(command.args, mpirun_options_);
  const std::int64_t threads = std::max<std::int64_t>(1, usable_cores() / most_ranks_);
  append(command.args, trainer_command(trainer_, cell, files, threads));
  return command;
}

ProcessResult LocalLauncher::launch(const GridCell& cell, const CellFiles& files) {
  return run_stoppable(command(cell, files), files, stop_requests_);
}

std::filesystem::path program_beside_us(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

void require_program(const std::filesystem::path& file) {
  if (::access(file.c_str(), X_OK) == 0) return;
  throw Error(ExitCode::kEnvironment, fmt::format("cannot run {}: {}", file.string(), errno_text()),
              "build it with `make`");
}

}  // namespace gradsync::sweep
