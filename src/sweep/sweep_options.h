#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/cli/key_values.h"
#include "base/cli/program_help.h"

namespace gradsync::sweep {

/// The options of gradsync-sweep itself; the job file is its one positional argument.
struct SweepOptions {
  std::filesystem::path results;              ///< empty: the job file's
  std::vector<std::string> set;               ///< KEY=VALUE, in place of the job file's keys
  std::string launcher = "auto";              ///< one of launcher_names()
  std::int64_t ranks_per_node = 0;            ///< 0: the job file's
  std::string mpirun = "mpirun";              ///< the program that starts ranks on this machine
  std::string gpu_request = "gpus-per-node";  ///< how steps of srun request GPUs
  std::string launcher_options;               ///< words for srun or mpirun, behind the job file's
  std::string cell;                           ///< the only one, by number or name; empty: all
  bool dry_run = false, status = false, list = false;
};

OptionTable sweep_option_table();

/// What stands on the command line of gradsync-sweep.
struct SweepCommand {
  ParsedCommandLine given;                ///< in front of the `--`
  SweepOptions options;                   ///< from it, the environment and the site file
  std::vector<KeyValue> trainer_options;  ///< behind it
};

/// Reads it, and what the environment and the site file add. Throws Error kUsage.
SweepCommand read_sweep_command(int argc, const char* const* argv);

ProgramHelp sweep_help();

}  // namespace gradsync::sweep
