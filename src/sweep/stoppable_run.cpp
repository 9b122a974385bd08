#include "sweep/stoppable_run.h"

#include <signal.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace gradsync::sweep {

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
