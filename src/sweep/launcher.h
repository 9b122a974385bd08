#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/process.h"
#include "sweep/grid.h"
#include "sweep/job_file.h"

namespace gradsync::sweep {

/// The files of one cell in the results folder.
struct CellFiles {
  std::filesystem::path run;          ///< <cell>.h5
  std::filesystem::path journal;      ///< <cell>.h5.journal, while the run is not complete
  std::filesystem::path log;          ///< <cell>.log, what the run printed
  std::filesystem::path failure;      ///< <cell>.failed.json
  std::filesystem::path running;      ///< <cell>.running, while it runs (cell_lock.h)
  std::filesystem::path checkpoints;  ///< <cell>.checkpoints, a folder, of an unfinished run
};

CellFiles cell_files(const std::filesystem::path& folder, const GridCell& cell);

/// The cell's options as arguments of gradsync-train: --name=value, and --name or --no-name.
std::vector<std::string> trainer_arguments(const GridCell& cell);

/// Whether the trainer would find a checkpoint of the cell and may resume from it, or a journal of
/// the complete run that it only has to publish.
bool is_resumable(const GridCell& cell, const CellFiles& files);

/// A command as it is run, without a shell.
struct LaunchCommand {
  std::vector<std::string> environment;  ///< "NAME=value", added to ours
  std::vector<std::string> args;
};

/// The command as a line that a POSIX shell reads back as exactly these words.
std::string shell_text(const LaunchCommand& command);

/// The end of every launcher's command: `trainer` with the cell's options, as many `threads` unless
/// the cell sets them, and going on from a checkpoint where there is one.
std::vector<std::string> trainer_command(const std::filesystem::path& trainer, const GridCell& cell,
                                         const CellFiles& files, std::int64_t threads);

/// Puts `more` behind `args`.
void append(std::vector<std::string>& args, const std::vector<std::string>& more);

/// How often the sweep was asked to stop: once, the run in progress may write a checkpoint; more
/// often, it is ended at once.
using StopRequests = std::function<int()>;

/// Starts cells: with mpirun on this machine (local_launcher.h) or with srun (srun_launcher.h).
class Launcher {
 public:
  virtual ~Launcher() = default;

  /// Throws Error kEnvironment if the cell needs more than there is to run on: before anything
  /// runs.
  virtual void require_room(const GridCell&) const {}

  /// What `launch` runs; starts and writes nothing.
  virtual LaunchCommand command(const GridCell& cell, const CellFiles& files) const = 0;

  /// Runs the cell to its end, its output to `files.log`. A run that fails is no error here.
  /// Throws Error kEnvironment if it cannot be started at all.
  virtual ProcessResult launch(const GridCell& cell, const CellFiles& files) = 0;
};

/// The names that --launcher takes.
const std::vector<std::string>& launcher_names();

/// What `auto` stands for: srun inside a Slurm job, local elsewhere; any other name is itself.
std::string resolved_launcher(const std::string& name);

/// The launcher of a resolved name, local or srun (slurm starts nothing itself, see submit_grid.h).
/// Throws Error kEnvironment for srun outside a Slurm job.
std::unique_ptr<Launcher> make_launcher(const std::string& name, const Job& job, const Grid& grid,
                                        StopRequests stop_requests);

}  // namespace gradsync::sweep
