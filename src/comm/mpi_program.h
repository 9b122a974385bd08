// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/cli/program_help.h"
#include "base/cli/program_output.h"
#include "comm/session.h"

namespace gradsync {

/// A program whose ranks MPI starts.
struct MpiProgram {
  ProgramHelp help;
  OptionTable options;
  Foreign foreign = Foreign::kIgnore;  ///< variables of the environment that are no option
  /// Takes the values over. Throws Error kUsage for one that cannot be.
  std::function<void(const OptionValues& values)> read;
  /// Throws Error kCannotCreate for a file that cannot be written. Called on rank 0 after `read`.
  std::function<void()> require_outputs;
  /// How long ranks wait for each other. Called after `read`.
  std::function<WatchLimits()> limits;
  /// Runs it on all ranks and returns the exit code. What it throws ends the job; it may throw only
  /// where nothing stands whose end is collective.
  std::function<int(const Session& session, const OptionValues& values,
                    const std::string& command_line, ProgramOutput& output)>
      run;
  /// A job of one rank that was meant to be larger ends before `run`. Off: `run` reports it.
  bool checks_launch = true;
  /// What a rank does in `run` while it is in no phase of its own.
  WatchedPhase phase = WatchedPhase::kTraining;
};

/// Every option as this rank has it, for require_agreement: all ranks must mean the same.
std::vector<NamedText> named_values(const OptionValues& values);

/// Answers --help, --version and --print-config without MPI. An error of the command line, or a
/// launch in which no rank could find the others, ends the job before MPI starts, with one message
/// of rank 0.
int run_mpi_program(const MpiProgram& program, int argc, char** argv);

}  // namespace gradsync
