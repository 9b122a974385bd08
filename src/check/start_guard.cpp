#include "check/start_guard.h"

#include <unistd.h>

#include <chrono>

#include <fmt/format.h>

#include "comm/launcher.h"
#include "support/error.h"

namespace gradsync {

namespace {

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown host";
}

}  // namespace

StartGuard::StartGuard(double patience_s) : thread_([this, patience_s] { watch(patience_s); }) {}

StartGuard::~StartGuard() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void StartGuard::watch(double patience_s) {
  std::unique_lock lock(mutex_);
  if (ended_.wait_for(lock, std::chrono::duration<double>(patience_s), [&] { return over_; }))
    return;
  const Launcher launcher = find_launcher();
  print_error("gradsync-check",
              Error(ExitCode::kEnvironment,
                    fmt::format("rank {} ({}): MPI has not started in {:g} s (--timeout), of {} "
                                "ranks by {}",
                                launcher.rank, host_name(), patience_s, launcher.ranks,
                                launcher.name.empty() ? "no launcher" : launcher.name),
                    "look for hosts that do not answer and for firewalls between them; try mpirun "
                    "-n 2 hostname, then srun --mpi=pmix or mpirun --mca btl self,tcp"));
  std::fflush(stderr);
  ::_exit(static_cast<int>(ExitCode::kEnvironment));
}

}  // namespace gradsync
