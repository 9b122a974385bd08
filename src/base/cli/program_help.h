// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/cli/options.h"

namespace gradsync {

/// What a program says of itself. --help, --help-all, the manual page and the completion of bash
/// are made from it and from the option table.
struct ProgramHelp {
  std::string name;      ///< "gradsync-train", or "gradsync-report compare" of a command
  std::string usage;     ///< "mpirun -n RANKS gradsync-train [OPTION...]"
  std::string purpose;   ///< one sentence, for the manual page's NAME too
  std::string examples;  ///< commands that work, one a line; --help shows the first three
  /// Exit codes that not every program has: kCheckFailed, kStoppedEarly, kNumbers, kHang and
  /// kRanksDisagree.
  std::vector<ExitCode> codes;
  std::vector<std::string> basic = {};  ///< options that --help shows; empty: all of them
  std::string details = {};             ///< paragraphs for --help-all, one a line
  std::string notes = {};               ///< ends --help-all; lines as they are
  /// First words that have options of their own, for the completion.
  struct Command {
    std::string name;
    OptionTable options;
  };
  std::vector<Command> commands = {};
  std::string listing = {};  ///< behind the options; lines as they are
};

/// The text of --help: purpose, three examples, and the basic options by group, each with the first
/// clause of its help. In at most 80 columns, as are all options with --help-all in 100 columns,
/// which ends with the exit codes. Both end with a newline.
std::string help_text(const ProgramHelp& help, const OptionTable& table);
std::string full_help_text(const ProgramHelp& help, const OptionTable& table);

/// A page for man(1), section 1.
std::string manual_page(const ProgramHelp& help, const OptionTable& table);

/// A script for bash-completion.
std::string bash_completion(const ProgramHelp& help, const OptionTable& table);

/// What a command line requests in place of a run: the text with a newline at its end, or nothing.
std::optional<std::string> answer(const ProgramHelp& help, const OptionTable& table,
                                  const ParsedCommandLine& given);

}  // namespace gradsync
