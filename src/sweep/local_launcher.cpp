#include "sweep/local_launcher.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <regex>
#include <thread>

#include <fmt/format.h>

#include "base/error.h"

namespace gradsync::sweep {

namespace {

using Words = std::vector<std::string>;

MpirunFamily open_mpi_of(const std::string& line) {
  static const std::regex pattern(R"([a-z.]+ \((Open MPI|OpenRTE)\) (\d+)\.\d+.*)");
  std::smatch parts;
  if (!std::regex_match(line, parts, pattern)) return MpirunFamily::kUnknown;
  const std::string major = parts[2];
  if (major == "3" || major == "4") return MpirunFamily::kOpenMpi4;
  if (major == "5" || major == "6") return MpirunFamily::kOpenMpi5;
  return MpirunFamily::kUnknown;
}

// With the default of 5 minutes a lost node is noticed after 8.
Words with_keep_alive(Words words, const std::string& option) {
  for (const auto& [name, value] : {std::pair{"time", "5"}, {"intvl", "2"}, {"probes", "3"}})
    append(words, {option, fmt::format("oob_tcp_keepalive_{}", name), value});
  return words;
}

std::int64_t usable_cores() {
  cpu_set_t cores = {};
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) return CPU_COUNT(&cores);
  // More cores than the fixed-size set holds.
  return std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace

MpirunFamily family_of_version(const std::string& text) {
  static const std::regex intel(R"(Intel\(R\) MPI Library for Linux\* OS, Version 20\d\d.*)");
  const std::string line = text.substr(0, text.find('\n'));
  if (line == "HYDRA build details:") return MpirunFamily::kHydra;
  if (std::regex_match(line, intel)) return MpirunFamily::kIntel;
  return open_mpi_of(line);
}

const std::vector<std::string>& options_of(MpirunFamily family) {
  static const std::map<MpirunFamily, Words> options = {
      {MpirunFamily::kOpenMpi4,
       with_keep_alive({"--oversubscribe", "--bind-to", "none", "--quiet"}, "--mca")},
      {MpirunFamily::kOpenMpi5,
       with_keep_alive({"--oversubscribe", "--bind-to", "none"}, "--prtemca")},
      {MpirunFamily::kHydra, {}},
      {MpirunFamily::kIntel, {"-genv", "I_MPI_PIN", "0"}},
      {MpirunFamily::kUnknown, {}}};
  return options.at(family);
}

Mpirun ask_mpirun(const std::string& program) {
  ProcessOptions quietly;
  quietly.stdin_path = quietly.stderr_path = "/dev/null";
  try {
    const auto asked = capture_process({program, "--version"}, quietly);
    const MpirunFamily family = family_of_version(asked.output);
    // Intel's mpirun is a shell script, which a signal ends in place of reaching the ranks.
    if (family != MpirunFamily::kIntel) return {program, family};
    return {std::filesystem::path(program).replace_filename("mpiexec.hydra"), family};
  } catch (const Error&) {
    return {program, MpirunFamily::kUnknown};
  }
}

LocalLauncher::LocalLauncher(Mpirun mpirun, std::filesystem::path trainer,
                             std::vector<std::string> mpirun_options, std::int64_t most_ranks,
                             StopRequests stop_requests)
    : mpirun_(std::move(mpirun)),
      trainer_(std::move(trainer)),
      mpirun_options_(std::move(mpirun_options)),
      most_ranks_(most_ranks),
      stop_requests_(std::move(stop_requests)) {}

LaunchCommand LocalLauncher::command(const GridCell& cell, const CellFiles& files) const {
  LaunchCommand command;
  if (geteuid() == 0)
    command.environment = {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"};
  command.args = {mpirun_.program, "-n", std::to_string(cell.ranks)};
  append(command.args, options_of(mpirun_.family));
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
