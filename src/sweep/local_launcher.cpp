#include "sweep/local_launcher.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include <fmt/format.h>

#include "support/error.h"

namespace gradsync::sweep {

namespace {

// With the default of 5 minutes a lost node is noticed after 8.
const std::vector<std::string> kKeepAlive = {"--mca", "oob_tcp_keepalive_time",   "5",
                                             "--mca", "oob_tcp_keepalive_intvl",  "2",
                                             "--mca", "oob_tcp_keepalive_probes", "3"};

std::int64_t usable_cores() {
  cpu_set_t cores = {};
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

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Batch systems may signal mpirun as well as us, and mpirun (4.1) that gets a second signal at once
// leaves its ranks running.
constexpr auto kGrace = milliseconds(3000);
constexpr auto kPoll = milliseconds(50);

// Waits for `condition` or for the end of the run; true if the condition came first.
bool wait_for(const std::stop_token& ended, const std::function<bool()>& condition) {
  while (!ended.stop_requested()) {
    if (condition()) return true;
    std::this_thread::sleep_for(kPoll);
  }
  return false;
}

void pass_requests_on(const std::stop_token& ended, const StopRequests& requests,
                      const std::atomic<pid_t>& pid) {
  if (!wait_for(ended, [&] { return requests() > 0 && pid != 0; })) return;
  ::kill(pid, SIGUSR1);
  const auto asked = steady_clock::now();
  const auto asked_again = [&] { return requests() > 1 && steady_clock::now() - asked > kGrace; };
  if (wait_for(ended, asked_again)) ::kill(pid, SIGTERM);
}

}  // namespace

ProcessResult run_stoppable(const LaunchCommand& command, const CellFiles& files,
                            const StopRequests& stop_requests) {
  std::atomic<pid_t> pid = 0;
  ProcessOptions options{"/dev/null", files.log, files.log, command.environment, {}};
  options.append = options.own_group = true;
  options.started = [&](pid_t started) { pid = started; };
  const std::jthread messenger(
      [&](const std::stop_token& ended) { pass_requests_on(ended, stop_requests, pid); });
  return run_process(command.args, options);
}

}  // namespace gradsync::sweep
