// SPDX-License-Identifier: BSD-3-Clause
#include <chrono>
#include <filesystem>
#include <iostream>
#include <map>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/file.h"
#include "base/launcher.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "comm/mpi_program.h"

namespace gradsync {

namespace {

/// How long other ranks leave the report to rank 0, which may start seconds later on a busy host:
/// at its end mpirun ends them.
constexpr auto kRootReports = std::chrono::seconds(10);

/// Reports an error before MPI_Init and returns the exit code.
int end_before_start(const std::string& program, const Launcher& launcher, const Error& error) {
  // The tasks of srun have one command line, but not all of them may see its files: of those each
  // task tells itself. At the first one that fails, srun may end the others: rank 0 could be ended
  // before it has printed. The exit code of srun is the largest of all.
  const bool everywhere =
      launcher.name == "srun" && (error.code() == ExitCode::kUsage || cannot_start(launcher));
  if (launcher.rank != 0 && everywhere) return static_cast<int>(ExitCode::kOk);
  if (launcher.rank != 0) std::this_thread::sleep_for(kRootReports);
  const std::string where = launcher.rank != 0 ? fmt::format("rank {}: ", launcher.rank) : "";
  print_error(program, Error(error.code(), where + error.what(), error.fix()));
  return error.exit_code();
}

void require_start(const Launcher& launcher) {
  if (cannot_start(launcher))
    throw Error(ExitCode::kEnvironment,
                fmt::format("srun started {} tasks ({}) without PMIx, so none can find the others",
                            launcher.ranks, launcher.ranks_from),
                kSrunFix);
}

/// The value of an option, empty for one that the program does not have.
std::string value_of(const ParsedCommandLine& parsed, const std::string& name) {
  const auto given = parsed.values.find(name);
  return given == parsed.values.end() ? std::string() : given->second.value;
}

/// Or the one that is written last would take the place of the other.
void require_distinct_outputs(const ParsedCommandLine& parsed) {
  std::map<std::filesystem::path, std::string> named;
  const auto add = [&](const std::string& option, const std::string& file) {
    if (file.empty()) return;
    const auto path = std::filesystem::absolute(file).lexically_normal();
    if (const auto [other, is_new] = named.emplace(path, option); !is_new)
      throw Error(ExitCode::kUsage,
                  fmt::format("{} and {} name the same file, '{}'", other->second, option, file),
                  "name a file each");
  };
  for (const char* name : {"output", "save", "junit"})
    add(fmt::format("--{}", name), value_of(parsed, name));
  add("--json", parsed.json);
}

}  // namespace

std::vector<NamedText> named_values(const OptionValues& values) {
  return each(values, [](const auto& one) { return NamedText{one.first, one.second.value}; });
}

int run_mpi_program(const MpiProgram& program, int argc, char** argv) {
  prepare_standard_streams();
  const Launcher launcher = find_launcher();
  ParsedCommandLine parsed;
  const auto require_outputs = [&] {
    require_distinct_outputs(parsed);
    require_writable(parsed.json);
    if (program.require_outputs) program.require_outputs();
  };
  try {
    parsed = resolve_options(program.options, argc, argv, {}, program.foreign);
    parsed.quiet = parsed.quiet || value_of(parsed, "junit") == "-";
    if (parsed.has_values()) program.read(parsed.values);
    if (const auto text = answer(program.help, program.options, parsed))
      return run_program(program.help.name, [&] {
        std::cout << *text;
        return 0;
      });
    // The other tasks of srun would wait for rank 0 in MPI_Init.
    if (launcher.rank == 0 && launcher.name != "srun") require_outputs();
    require_start(launcher);
  } catch (...) {
    return end_before_start(program.help.name, launcher, current_error());
  }
  const Session session(argc, argv, program.help.name, program.limits());
  {
    const WatchdogTimeoutExtension starts(session.watchdog(), WatchedPhase::kStartUp);
    session.together([&] {
      if (program.checks_launch) session.require_sound_launch();
      if (session.root()) require_outputs();
    });
  }
  std::string command_line;
  for (int i = 0; i < argc; ++i)
    command_line += (i > 0 ? " " : "") + shell_quoted(argv[i]);
  ProgramOutput output(parsed, program.help.name);
  try {
    const WatchdogTimeoutExtension works(session.watchdog(), program.phase);
    const int code = program.run(session, parsed.values, command_line, output);
    session.together([&] {
      if (session.root() && code == 0) require_written();
    });
    return code;
  } catch (...) {
    session.abort(current_error());
  }
}

}  // namespace gradsync
