#pragma once

#include "sweep/launcher.h"

namespace gradsync::sweep {

/// Launchers named mpirun or mpiexec, by the options that they accept: each refuses those of the
/// others. slurm/mpirun.sh has the same families.
enum class MpirunFamily {
  kOpenMpi4,  ///< also 3
  kOpenMpi5,  ///< also 6
  kHydra,     ///< MPICH, MVAPICH
  kIntel,
  kUnknown,  ///< gets -n only
};

/// The family, from what `mpirun --version` prints on standard output.
MpirunFamily family_of_version(const std::string& text);

/// The options beside -n: ranks may outnumber cores, they are not bound, the launcher adds no
/// messages, and a lost node is noticed after 20 s.
const std::vector<std::string>& options_of(MpirunFamily family);

struct Mpirun {
  std::string program = "mpirun";
  MpirunFamily family = MpirunFamily::kUnknown;
};

/// Runs `program --version`. In place of Intel's mpirun, which passes no signal to the ranks,
/// stands the mpiexec.hydra beside it. A program that cannot be started is of an unknown family:
/// the first cell reports it.
Mpirun ask_mpirun(const std::string& program);

/// Runs cells one after the other on this machine with mpirun.
class LocalLauncher : public Launcher {
 public:
  /// `trainer` is the program to start, `mpirun_options` are put in front of it. Cells without
  /// `threads` get the cores this process may use over `most_ranks` (of the grid's largest cell),
  /// at least 1: the same for all cells, so that few ranks are a fair base for many.
  LocalLauncher(Mpirun mpirun, std::filesystem::path trainer,
                std::vector<std::string> mpirun_options, std::int64_t most_ranks,
                StopRequests stop_requests);

  LaunchCommand command(const GridCell& cell, const CellFiles& files) const override;
  ProcessResult launch(const GridCell& cell, const CellFiles& files) override;

 private:
  Mpirun mpirun_;
  std::filesystem::path trainer_;
  std::vector<std::string> mpirun_options_;
  std::int64_t most_ranks_;
  StopRequests stop_requests_;
};

/// The program `name` in the folder of this executable, whether it is there or not.
std::filesystem::path program_beside_us(const std::string& name);

/// Throws Error kEnvironment if the program is missing or may not be run.
void require_program(const std::filesystem::path& file);

/// Runs mpirun or srun to its end, its output behind what `files.log` holds, in a process group of
/// its own: a signal reaches it only through us. At the first request to stop it gets SIGUSR1,
/// which it forwards to its ranks: they finish the iteration, write a checkpoint and end with exit
/// code 75. At a second request it gets SIGTERM, which ends it at once.
ProcessResult run_stoppable(const LaunchCommand& command, const CellFiles& files,
                            const StopRequests& stop_requests);

}  // namespace gradsync::sweep
