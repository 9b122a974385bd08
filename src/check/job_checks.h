#pragma once

#include <map>
#include <string>
#include <vector>

#include "check/check.h"

/// The job and its hosts. Facts of the checks and their judgments; the functions with the prefix
/// judge_ need neither MPI nor a cluster.
namespace gradsync::check {

// --- launch: whether the job has the size that its launcher and the user state, was started by the
// MPI it is linked with, and has PMIx behind it under srun.

/// What the launcher of rank 0 says, beside what MPI says.
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

// --- ranks: whether all hosts have as many ranks as they should.

struct RankFacts {
  int local_rank = 0;
  std::string cores;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankFacts, local_rank, cores)

/// One row of findings and the table of hosts.
CheckResult judge_ranks(const Ranks<RankFacts>& ranks, const CheckOptions& options);

// --- nodes: whether the hosts are of one kind.

/// A host, as its first rank finds it; the other ranks state nothing.
struct NodeFacts {
  bool looked = false;
  std::string cpu, kernel;
  std::map<std::string, int> mtu_of;  ///< bytes, by network interface; without the loopback
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NodeFacts, looked, cpu, kernel, mtu_of)

std::vector<Finding> judge_nodes(const Ranks<NodeFacts>& ranks);

}  // namespace gradsync::check
