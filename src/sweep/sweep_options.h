#pragma once

#include <string>
#include <vector>

#include "support/key_values.h"
#include "support/options.h"

namespace gradsync::sweep {

/// The options of gradsync-sweep itself; the job file is its one positional argument.
OptionTable sweep_option_table();

/// What stands on the command line of gradsync-sweep.
struct SweepCommand {
  ParsedCommandLine given;                ///< in front of the `--`
  std::vector<KeyValue> trainer_options;  ///< behind it
};

/// Reads it, and what the environment and the site file add. Throws Error kUsage.
SweepCommand read_sweep_command(int argc, const char* const* argv);

/// The text of --help, with the keys of a job file.
std::string sweep_help();

}  // namespace gradsync::sweep
