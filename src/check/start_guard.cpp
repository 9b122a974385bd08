#include "check/start_guard.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>

#include "support/error.h"

namespace gradsync::check {

namespace {

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown host";
}

}  // namespace

bool cannot_start(const Launcher& launcher) {
  return launcher.name == "srun" && launcher.ranks > 1 && !launcher.pmix && !launcher.pmi;
}

void end_if_it_cannot_start(const Launcher& launcher) {
  if (!cannot_start(launcher)) return;
  if (launcher.rank == 0)
    print_error("gradsync-check",
                Error(ExitCode::kEnvironment,
                      fmt::format("srun started {} tasks ({}) without PMIx, so none can find the "
                                  "others",
                                  launcher.ranks, launcher.ranks_from),
                      "srun --mpi=pmix …; `srun --mpi=list` shows whether Slurm has it, else start "
                      "with mpirun"));
  std::exit(static_cast<int>(ExitCode::kEnvironment));
}

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

}  // namespace gradsync::check
