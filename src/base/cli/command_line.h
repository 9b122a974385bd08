#pragma once

#include <string>
#include <vector>

#include "base/cli/options.h"

namespace gradsync {

/// What stands on a command line, before any other source is looked at.
struct CommandLine {
  struct Given {
    std::string name, value;
    std::string where;  ///< as the user wrote it: "--no-augment"
  };
  std::vector<Given> given;  ///< switches have the value "true" or "false"
  std::vector<std::string> positional;
};

/// Splits the command line by `table`. Long options, never abbreviated, and the letters of a table
/// that has some (`-b 8`, `-b8`). Throws Error kUsage for an unknown option (with the nearest), a
/// missing or surplus value, an option given twice.
CommandLine parse_command_line(const OptionTable& table, int argc, const char* const* argv);

/// The words that parse_command_line takes after "--": names, and "no-" before those of switches.
std::vector<std::string> spellings(const OptionTable& table);

}  // namespace gradsync
