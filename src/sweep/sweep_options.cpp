// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "base/cli/bound_option.h"
#include "base/cli/options.h"
#include "base/error.h"
#include "options/options.h"
#include "sweep/job_file.h"
#include "sweep/launcher.h"
#include "sweep/runner.h"

namespace gradsync::sweep {

namespace {

constexpr const char* kDetails =
    "Complete cells are not run again, and stopped cells resume from their checkpoint: the same "
    "command completes a grid that was interrupted.\n"
    "Options after -- are options of gradsync-train. They apply to every cell and replace the keys "
    "of the job file.\n"
    "Two words in place of the job file: submit gives a template of slurm/ to sbatch, as "
    "slurm/submit does, and mpirun PROGRAM prints the family of a launcher and its options.\n"
    "On Ctrl-C, SIGTERM, SIGHUP or SIGUSR1 the current run writes a checkpoint, and gradsync-sweep "
    "ends with exit code 75. A second signal, 3 seconds later or more, ends it at once.";

constexpr const char* kExamples =
    "gradsync-sweep jobs/demo.cfg\n"
    "gradsync-sweep jobs/sync-modes.cfg --dry-run\n"
    "gradsync-sweep jobs/demo.cfg --results results/short --set iterations=5\n"
    "gradsync-sweep jobs/sync-modes.cfg --results results/tuned --set bucket-cap=4MiB,25MiB\n"
    "gradsync-sweep jobs/demo.cfg --status\n"
    "gradsync-sweep jobs/demo.cfg --launcher slurm --ranks-per-node 4 --dry-run\n"
    "gradsync-sweep jobs/demo.cfg --cell 3 --results results/third -- --iterations 5 --no-augment";

ProgramOptions<SweepOptions> all_options() {
  using O = SweepOptions;
  using Value = BoundValue<O>;
  return {
      "sweep",
      {{"Options",
        {
            {"results", Value::text_value<std::filesystem::path>(&O::results, "FOLDER"),
             "folder for the runs, in place of the job file's"},
            {"set",
             Value::texts(&O::set, "KEY=VALUE"),
             "replaces a key of the job file, lists too; may be repeated",
             {},
             0,
             /*repeatable=*/true},
            {"launcher", Value::choice(&O::launcher, launcher_names()),
             "launcher of the ranks: mpirun on this machine (local), steps inside a Slurm job "
             "(srun), or job arrays of slurm/grid.sbatch, one per shape, submitted with "
             "slurm/submit "
             "(slurm); auto: srun inside a Slurm job but not in a step of srun, else local"},
            {"ranks-per-node", Value::integer(&O::ranks_per_node, 0, 4096, "not given"),
             "srun and slurm: ranks on one node, in place of the job file's"},
            {"mpirun", Value::text_value(&O::mpirun, "PROGRAM"),
             "local: the mpirun or mpiexec of the MPI that gradsync was built with; its family "
             "(Open MPI 4, Open MPI 5, MPICH, Intel MPI) decides the options it is given, another "
             "gets -n only"},
            {"gpu-request", Value::text_value(&O::gpu_request, "FORM"),
             "srun: the option by which a step requests its GPUs: gpus-per-node, gpus-per-task, "
             "gres (--gres=gpu:N), gres:TYPE (--gres=gpu:TYPE:N) or none; slurm: key gpu-request "
             "of slurm/site"},
            {"launcher-options", Value::text_value(&O::launcher_options, "WORDS"),
             "local and srun: words for srun or mpirun after those of the job file: what this site "
             "needs to start a program; not part of the grid's identity"},
            {"cell", Value::text_value(&O::cell, "K"),
             "run this cell, with the cells that are trained in one job with it: its number, from "
             "1, or its name in --list; prints no tables"},
            {"dry-run", Value::on_off(&O::dry_run),
             "print the command of each job that is to run (slurm: those that submit them); write "
             "and submit nothing"},
            {"status", Value::on_off(&O::status),
             "print the progress of each cell and the time left, also while the grid runs"},
            {"list", Value::on_off(&O::list),
             "print each cell and whether it is done, and write nothing"},
        }}}};
}

}  // namespace

OptionTable sweep_option_table() {
  return all_options().table();
}

SweepCommand read_sweep_command(int argc, const char* const* argv) {
  const char* const* end = argv + argc;
  const char* const* dashes = std::find(argv, end, std::string_view("--"));
  SweepCommand command;
  command.given =
      resolve_options(sweep_option_table(), static_cast<int>(dashes - argv), argv, "JOB.cfg");
  command.options = all_options().read(command.given.values);
  // The words behind the dashes are read as behind a program's name.
  const CommandLine rest = parse_command_line(train_option_table(), static_cast<int>(end - dashes),
                                              dashes, "gradsync-train --help-all");
  if (!rest.positional.empty())
    throw Error(ExitCode::kUsage,
                fmt::format("\"{}\" is not expected after the --", rest.positional.front()),
                "give options of gradsync-train: -- --lr 0.2");
  for (const auto& option : rest.given)
    command.trainer_options.push_back({option.name, option.value, option.where, true});
  return command;
}

ProgramHelp sweep_help() {
  return {"gradsync-sweep",
          "gradsync-sweep JOB.cfg [OPTION...] [-- TRAINER OPTIONS]",
          "Runs the grid of a job file and prints the tables.",
          kExamples,
          {ExitCode::kCheckFailed, ExitCode::kStoppedEarly, ExitCode::kNumbers, ExitCode::kHang,
           ExitCode::kRanksDisagree},
          {},
          kDetails,
          job_file_help()};
}

}  // namespace gradsync::sweep
