#pragma once

#include "sweep/launcher.h"

namespace gradsync::sweep {

/// Runs mpirun or srun to its end, its output behind what `files.log` holds, in a process group of
/// its own: a signal reaches it only through us. At the first request to stop it gets SIGUSR1,
/// which it forwards to its ranks: they finish the iteration, write a checkpoint and end with exit
/// code 75. At a second request it gets SIGTERM, which ends it at once.
ProcessResult run_stoppable(const LaunchCommand& command, const CellFiles& files,
                            const StopRequests& stop_requests);

}  // namespace gradsync::sweep
