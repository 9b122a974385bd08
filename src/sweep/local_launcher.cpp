#include "sweep/local_launcher.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include <fmt/format.h>

#include "support/error.h"
#include "support/file.h"
#include "support/parse.h"

namespace gradsync {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// mpirun (4.1) that gets a second signal within five seconds leaves at once and its ranks run on.
// Ctrl-C and batch systems signal the whole process group, mpirun included; it then needs 2 s.
constexpr auto kGrace = milliseconds(3000);
constexpr auto kPoll = milliseconds(50);

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

bool sets(const GridCell& cell, const std::string& key) {
  return std::any_of(cell.options.begin(), cell.options.end(),
                     [&](const auto& option) { return option.first == key; });
}

void append(std::vector<std::string>& args, const std::vector<std::string>& more) {
  args.insert(args.end(), more.begin(), more.end());
}

pid_t read_pid(const std::filesystem::path& file) {
  try {
    const std::string text = read_text_file(file);
    const std::int64_t pid = parse_integer(text.substr(0, text.find_first_of(" \n")));
    return pid > 1 ? static_cast<pid_t>(pid) : 0;
  } catch (const Error&) {
    return 0;  // not written yet
  }
}

// Waits for `condition` or for the end of the run; true if the condition came first.
bool wait_for(const std::stop_token& ended, const std::function<bool()>& condition) {
  while (!ended.stop_requested()) {
    if (condition()) return true;
    std::this_thread::sleep_for(kPoll);
  }
  return false;
}

void end_run_when_asked(const std::stop_token& ended, const StopRequested& stop_requested,
                        const std::filesystem::path& pid_file) {
  if (!wait_for(ended, stop_requested)) return;
  const auto asked = steady_clock::now();
  if (!wait_for(ended, [&] { return steady_clock::now() - asked > kGrace; })) return;
  pid_t pid = 0;
  if (wait_for(ended, [&] { return (pid = read_pid(pid_file)) != 0; })) ::kill(pid, SIGTERM);
}

}  // namespace

LocalLauncher::LocalLauncher(std::filesystem::path trainer, std::vector<std::string> mpirun_options,
                             StopRequested stop_requested)
    : trainer_(std::move(trainer)),
      mpirun_options_(std::move(mpirun_options)),
      stop_requested_(std::move(stop_requested)) {}

LaunchCommand LocalLauncher::command(const GridCell& cell, const CellFiles& files) const {
  LaunchCommand command;
  if (geteuid() == 0)
    command.environment = {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"};
  command.args = {"mpirun", "-n",     std::to_string(cell.ranks), "--oversubscribe", "--bind-to",
                  "none",   "--quiet"};
  append(command.args, kKeepAlive);
  append(command.args, mpirun_options_);
  command.args.push_back(trainer_.string());
  append(command.args, trainer_arguments(cell));
  if (!sets(cell, "threads"))
    command.args.push_back(
        fmt::format("--threads={}", std::max<std::int64_t>(1, usable_cores() / cell.ranks)));
  command.args.push_back("--output=" + files.run.string());
  return command;
}

ProcessResult LocalLauncher::launch(const GridCell& cell, const CellFiles& files) {
  LaunchCommand run = command(cell, files);
  std::filesystem::remove(files.pid);
  run.args.insert(run.args.begin() + 1, {"--report-pid", files.pid.string()});
  ProcessOptions options{"/dev/null", files.log, files.log, run.environment, {}};
  ProcessResult result;
  {
    const std::jthread ender([&](const std::stop_token& ended) {
      end_run_when_asked(ended, stop_requested_, files.pid);
    });
    result = run_process(run.args, options);
  }
  std::filesystem::remove(files.pid);
  return result;
}

std::filesystem::path program_beside_us(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

void require_program(const std::filesystem::path& file) {
  if (::access(file.c_str(), X_OK) == 0) return;
  throw Error(ExitCode::kEnvironment, fmt::format("cannot run {}: {}", file.string(), errno_text()),
              "build it with `make`");
}

}  // namespace gradsync
