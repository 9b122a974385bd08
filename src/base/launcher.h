// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace gradsync {

/// Value of an environment variable; empty if it is not set.
std::string variable(const std::string& name);

/// Who started this process, as the environment says.
struct Launcher {
  std::string name;           ///< "mpirun" (Open MPI), "srun", "mpiexec"; empty: directly
  int ranks = 1;              ///< of the job, by the launcher; 1 where it is not known
  std::string ranks_from;     ///< the environment variable it is from, or empty
  int rank = 0;               ///< this process's by the launcher's count
  bool pmix = false;          ///< a PMIx server stands behind it
  bool pmi = false;           ///< one of the older PMI, 1 or 2, or Cray's
  int cores_per_rank = 0;     ///< asked of Slurm with --cpus-per-task; 0: not asked
  bool in_slurm_job = false;  ///< of whatever launcher
};

/// Reads OMPI_COMM_WORLD_*, MPI_LOCALNRANKS, SLURM_*, PMIX_* and PMI_*. The word of mpirun and
/// mpiexec counts before srun's and the batch script's, because one-rank baselines run inside
/// larger allocations. Call it before MPI_Init, which adds to these variables.
Launcher find_launcher();

/// Whether no MPI could find the other ranks: srun started several and gave neither PMIx nor PMI.
/// Open MPI 4 then ends the process in MPI_Init with its own text and code 1, Open MPI 5 makes each
/// process rank 0 of 1.
bool cannot_start(const Launcher& launcher);

/// The fix where srun connects no ranks.
inline constexpr const char* kSrunFix =
    "srun --mpi=pmix … (MPICH, Intel MPI: --mpi=pmi2, Cray MPICH: --mpi=cray_shasta); `srun "
    "--mpi=list` shows what Slurm has, else start with mpirun";

}  // namespace gradsync
