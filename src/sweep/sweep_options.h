#pragma once

#include <string>

#include "support/options.h"

namespace gradsync {

/// The options of gradsync-sweep itself; the job file is its one positional argument.
OptionTable sweep_option_table();

/// The text of --help, with the keys of a job file.
std::string sweep_help();

}  // namespace gradsync
