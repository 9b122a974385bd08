#include "sweep/sweep_options.h"

namespace gradsync {

namespace {

constexpr const char* kUsage =
    "gradsync-sweep JOB.cfg [OPTION…]\n"
    "Runs the grid that a job file describes with mpirun, one cell after the other, and prints "
    "the\n"
    "tables. Cells that are complete are left alone, so the same command goes on where it stopped.";

constexpr const char* kExamples =
    "gradsync-sweep jobs/demo.cfg\n"
    "gradsync-sweep jobs/sync-modes.cfg --dry-run\n"
    "gradsync-sweep jobs/sync-modes.cfg --results results/tuned --set bucket-cap=4MiB,25MiB\n"
    "gradsync-sweep jobs/demo.cfg --set ranks=1,2 --set iterations=5 --set results=results/short\n"
    "gradsync-sweep jobs/demo.cfg --list";

constexpr const char* kJobFile = R"(
Keys of a job file (key = value, # begins a comment)
  any option of gradsync-train    a list with commas is an axis of the grid; "…" is never a list.
                                  One that the file leaves out is taken from GRADSYNC_<NAME>.
  ranks = 1, 2, 4                 an axis, too [1]
  repeats = 3                     runs of each cell [1]
  exclude = sync=none ranks=2,4   leaves out cells that meet all conditions; may be repeated
  name = my-study                 [the file's name]
  results = FOLDER                [results/<name>]
  order = as-written|random       random: by order-seed [as-written]
  order-seed = 1                  [1]
  mpirun-options = …              words put on mpirun's command line
  report-options = …              words put on gradsync-report's command line
)";

}  // namespace

OptionTable sweep_option_table() {
  const std::string group = "Options";
  const OptionTable table = {
      {"results", "FOLDER", "", "folder for the runs, in place of the job file's", group},
      {"set", "KEY=VALUE", "", "replaces a key of the job file, lists too; may be repeated", group,
       true},
      {"dry-run", "", "false", "print the command of each cell and write nothing", group},
      {"list", "", "false", "print each cell and whether it is done, and write nothing", group},
  };
  return scoped("sweep", table);
}

std::string sweep_help() {
  return help_text(kUsage, kExamples, sweep_option_table()) + kJobFile;
}

}  // namespace gradsync
