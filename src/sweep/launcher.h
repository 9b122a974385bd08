#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "support/process.h"
#include "sweep/grid.h"

namespace gradsync {

/// The files of one cell in the results folder.
struct CellFiles {
  std::filesystem::path run;      ///< <cell>.h5
  std::filesystem::path journal;  ///< <cell>.h5.journal, while the run is not complete
  std::filesystem::path log;      ///< <cell>.log, what the run printed
  std::filesystem::path failure;  ///< <cell>.failed.json
  std::filesystem::path pid;      ///< <cell>.pid, while it runs
};

CellFiles cell_files(const std::filesystem::path& folder, const GridCell& cell);

/// The cell's options as arguments of gradsync-train: --name=value, and --name or --no-name.
std::vector<std::string> trainer_arguments(const GridCell& cell);

/// A command as it is run, without a shell.
struct LaunchCommand {
  std::vector<std::string> environment;  ///< "NAME=value", added to ours
  std::vector<std::string> args;
};

/// The command as a line that a POSIX shell reads back as exactly these words.
std::string shell_text(const LaunchCommand& command);

/// Starts cells: with mpirun on this machine (local_launcher.h), later with srun or sbatch.
class Launcher {
 public:
  virtual ~Launcher() = default;

  /// What `launch` runs; starts and writes nothing.
  virtual LaunchCommand command(const GridCell& cell, const CellFiles& files) const = 0;

  /// Runs the cell to its end, its output to `files.log`. A run that fails is no error here.
  /// Throws Error kEnvironment if it cannot be started at all.
  virtual ProcessResult launch(const GridCell& cell, const CellFiles& files) = 0;
};

/// Whether the sweep was asked to stop.
using StopRequested = std::function<bool()>;

}  // namespace gradsync
