#include "check/cannot_start.h"

#include <cstdlib>

#include <fmt/format.h>

#include "support/error.h"

namespace gradsync::check {

bool cannot_start(const Launcher& launcher) {
  return launcher.name == "srun" && launcher.ranks > 1 && !launcher.pmix && !launcher.pmi;
}

void end_if_it_cannot_start(const Launcher& launcher) {
  if (!cannot_start(launcher)) return;
  // The exit code of srun is the largest of its tasks. At the first that fails, srun may end the
  // others: task 0 could be ended before it has printed the message.
  if (launcher.rank != 0) std::exit(static_cast<int>(ExitCode::kOk));
  print_error("gradsync-check",
              Error(ExitCode::kEnvironment,
                    fmt::format("srun started {} tasks ({}) without PMIx, so none can find the "
                                "others",
                                launcher.ranks, launcher.ranks_from),
                    "srun --mpi=pmix …; `srun --mpi=list` shows whether Slurm has it, else start "
                    "with mpirun"));
  std::exit(static_cast<int>(ExitCode::kEnvironment));
}

}  // namespace gradsync::check
