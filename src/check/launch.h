#pragma once

#include <string>
#include <vector>

#include "check/check.h"

namespace gradsync::check {

/// Of rank 0: what its launcher says, beside what MPI says.
struct LaunchFacts {
  Launcher launcher;
  int ranks = 1;              ///< by MPI
  std::string mpi_library;    ///< "Open MPI v4.1.4"
  std::string mpi_path;       ///< a library of the MPI this program uses; empty: unknown
  std::string launcher_path;  ///< the same library in the launcher's process; empty: unknown
};

/// The fix where srun connects no ranks.
inline constexpr const char* kSrunFix =
    "srun --mpi=pmix … (MPICH, Intel MPI: --mpi=pmi2, Cray MPICH: --mpi=cray_shasta); `srun "
    "--mpi=list` shows what Slurm has, else start with mpirun";

std::vector<Finding> judge_launch(const LaunchFacts& facts, const CheckOptions& options);

/// Whether the job has the size that its launcher and the user state, was started by the MPI it is
/// linked with, and has PMIx behind it under srun.
CheckResult check_launch(Job& job, const CheckOptions& options);

}  // namespace gradsync::check
