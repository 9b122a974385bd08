#pragma once

#include "support/launcher.h"

namespace gradsync::check {

/// Whether no MPI could find the other ranks: srun started several and gave neither PMIx nor PMI.
/// Open MPI 4 then ends the process in MPI_Init with its own text and code 1, Open MPI 5 makes each
/// process rank 0 of 1.
bool cannot_start(const Launcher& launcher);

/// Ends this process with kEnvironment if so; the first one reports it.
void end_if_it_cannot_start(const Launcher& launcher);

}  // namespace gradsync::check
