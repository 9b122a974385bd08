// SPDX-License-Identifier: BSD-3-Clause
// gradsync-check: tests in seconds what a run needs, and prints fixes.
//
//   mpirun -n 4 gradsync-check --data data/cifar-10
//   srun --mpi=pmix -n 8 gradsync-check --ranks 8 --ranks-per-node 4 --device cuda

#include <algorithm>
#include <chrono>
#include <iostream>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/cli/program_output.h"
#include "base/file.h"
#include "base/launcher.h"
#include "base/parse.h"
#include "base/version.h"
#include "check/check.h"
#include "check/mpi_job.h"
#include "comm/mpi_program.h"
#include "comm/session.h"

namespace gradsync::check {

namespace {

/// With --verbose prints each row when it is known, so that a hang shows after which check it came.
CheckResult run_checks(Job& job, const CheckOptions& options) {
  CheckResult all;
  for (const Check& check : checks()) {
    CheckResult one = std::ranges::find(options.skip, check.id) != options.skip.end()
                          ? CheckResult{{skipped(check.id, "--skip " + check.id)}}
                          : check.run(job, options);
    if (job.place().rank != 0) continue;
    for (Finding& finding : one.findings) {
      if (options.verbose) std::cout << row_text(finding) << std::flush;
      all.findings.push_back(std::move(finding));
    }
    std::move(one.tables.begin(), one.tables.end(), std::back_inserter(all.tables));
  }
  return all;
}

/// Ids of the findings that failed.
std::string names_of_failed(const std::vector<Finding>& findings) {
  std::vector<std::string> names;
  for (const Finding& finding : findings)
    if (finding.outcome == Outcome::kFail) names.push_back(finding.id);
  return fmt::format("{}", fmt::join(names, ", "));
}

void print_result(const CheckResult& result, const CheckOptions& options,
                  const std::string& command_line) {
  for (const Table& table : result.tables) {
    if (!options.verbose) break;
    std::cout << '\n';
    print_text(std::cout, table);
  }
  std::cout << closing_text(result.findings, options.verbose) << std::flush;
  if (!options.json.empty()) write_result(options.json, json_text(result, command_line));
  if (!options.junit.empty()) write_result(options.junit, junit_text(result.findings));
}

constexpr auto kOthersLeave = std::chrono::seconds(1);

/// The exit code. Told without MPI_Abort, which would print behind the failures.
ExitCode conclude(const std::vector<Finding>& findings) {
  const auto failures = count_of(findings, Outcome::kFail);
  if (failures == 0) return ExitCode::kOk;
  const Error error(ExitCode::kEnvironment,
                    fmt::format("{} of {} failed: {}", failures,
                                count_text(static_cast<std::int64_t>(findings.size()), "check"),
                                names_of_failed(findings)),
                    "the lines above name each with its fix");
  print_error("gradsync-check", error);
  return error.code();
}

/// Every process of a broken launch is rank 0 of 1: one of them speaks.
bool reported_elsewhere(const Session& session, const Launcher& launcher) {
  return session.size() == 1 && launcher.ranks > 1 && launcher.rank > 0;
}

/// Runs the checks; prints on rank 0, and writes --json and --junit. Returns the exit code: that of
/// rank 0 is kEnvironment if one failed. Collective.
int run_preflight(const Session& session, const Launcher& launcher, const CheckOptions& options,
                  const OptionValues& values, const std::string& command_line) {
  if (reported_elsewhere(session, launcher)) return static_cast<int>(ExitCode::kEnvironment);
  // Ranks that leave out different checks would meet in different collectives. What is written, by
  // rank 0 alone, may differ.
  std::vector<NamedText> compared = named_values(values);
  std::erase_if(compared, [](const NamedText& one) {
    return one.name == "json" || one.name == "junit" || one.name == "verbose";
  });
  require_agreement(session, compared);
  MpiJob job(session, launcher);
  if (session.root())
    std::cout << version_text("gradsync-check") << command_line << "\n\n" << std::flush;
  // Caught here, where the objects that all ranks must leave together still stand.
  try {
    const CheckResult result = run_checks(job, options);
    const WatchdogTimeoutExtension writes(session.watchdog(), WatchedPhase::kPublishing);
    session.together([&] {
      if (session.root()) print_result(result, options, command_line);
    });
    return static_cast<int>(session.root() ? conclude(result.findings) : ExitCode::kOk);
  } catch (...) {
    session.abort(current_error());
  }
}

}  // namespace

}  // namespace gradsync::check

int main(int argc, char** argv) {
  using namespace gradsync;
  using namespace gradsync::check;
  const Launcher launcher = find_launcher();
  CheckOptions options;
  const MpiProgram program{check_help(),
                           check_option_table(),
                           Foreign::kIgnore,
                           [&](const OptionValues& values) {
                             options = check_options(values);
                             if (options.device != "cpu") keep_nccl_log();
                           },
                           [&] { require_writable(options.junit); },
                           [&] { return watch_limits(options); },
                           [&](const Session& session, const OptionValues& values,
                               const std::string& command_line, ProgramOutput&) {
                             return run_preflight(session, launcher, options, values, command_line);
                           },
                           false,
                           WatchedPhase::kChecks};
  const int code = run_mpi_program(program, argc, argv);
  // At the first task that fails srun ends the others and reports a code of theirs: they leave
  // first.
  if (code != 0 && launcher.rank == 0 && launcher.ranks > 1)
    std::this_thread::sleep_for(kOthersLeave);
  return code;
}
