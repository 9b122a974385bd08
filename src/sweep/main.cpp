// gradsync-sweep: runs the grid of a job file.
//
//   gradsync-sweep jobs/demo.cfg
//   gradsync-sweep jobs/sync-modes.cfg --dry-run
#include <algorithm>
#include <iostream>

#include <fmt/format.h>

#include "base/cli/program_output.h"
#include "base/error.h"
#include "base/process.h"
#include "base/stop_signals.h"
#include "options/options.h"
#include "sweep/launcher.h"
#include "sweep/runner.h"
#include "sweep/submit_grid.h"
#include "sweep/sweep_options.h"

namespace {

using namespace gradsync;
using namespace gradsync::sweep;

const std::string kProgram = "gradsync-sweep";

Job requested_job(const SweepCommand& command) {
  const ParsedCommandLine& given = command.given;
  if (given.positional.size() != 1)
    throw Error(ExitCode::kUsage, fmt::format("give one job file, not {}", given.positional.size()),
                kProgram + " --help shows commands that work");
  const SweepOptions& options = command.options;
  Job job = read_job(given.positional.front(), options.set, command.trainer_options);
  if (!options.results.empty()) job.results = options.results;
  if (options.ranks_per_node > 0) job.ranks_per_node = options.ranks_per_node;
  job.launcher_options = option_words(options.launcher_options);
  job.mpirun = options.mpirun;
  job.gpu_request = options.gpu_request;
  return job;
}

// A misspelt variable would otherwise show only in the first cell.
void check_variables() {
  OptionTable known = sweep_option_table();
  for (const auto& spec : train_option_table())
    known.push_back(spec);
  reject_unknown_variables(known);
}

int list_cells(const Job& job, Grid grid) {
  std::sort(grid.cells.begin(), grid.cells.end(),
            [](const GridCell& a, const GridCell& b) { return a.number < b.number; });
  for (const auto& cell : grid.cells)
    std::cout << fmt::format("{:15}{:4}  {}\n",
                             state_text(cell_state(cell_files(job.results, cell))), cell.number,
                             cell.name);
  return 0;
}

// Of the grid in the folder: this shell need not have the settings of the job that runs.
int print_status(const Job& job, const FolderGrid& there, ProgramOutput& output) {
  for (const auto& difference : there.differences)
    std::cerr << fmt::format("{}: shown is the grid in {}: {}\n", kProgram, job.results.string(),
                             difference);
  const auto& cells = there.differences.empty() ? there.grid.cells : there.cells;
  output.print(status_table(job.name, grid_progress(cells, job.results)));
  return 0;
}

int print_commands(const Job& job, const std::vector<GridCell>& cells, const Launcher& launcher) {
  for (const auto& cell : cells)
    launcher.require_room(cell);
  for (const auto& cell : cells)
    std::cout << shell_text(launcher.command(cell, cell_files(job.results, cell))) << '\n';
  return 0;
}

/// gradsync-report with the job's options for it; tables and plots go into <results>/tables.
std::vector<std::string> report_command(const Job& job) {
  std::vector<std::string> command = {program_beside_us("gradsync-report").string(),
                                      job.results.string(), "--output",
                                      (job.results / "tables").string()};
  append(command, job.report_options);
  return command;
}

/// Its text is this program's result. Returns 0, or 1 if it failed.
int print_report(const Job& job, bool quiet) {
  require_program(program_beside_us("gradsync-report"));
  std::vector<std::string> command = report_command(job);
  if (quiet) command.emplace_back("--quiet");
  const ProcessResult result = run_process(command);
  if (!result.succeeded()) std::cerr << "gradsync-report ended with " << result.text() << '\n';
  return result.succeeded() ? 0 : 1;
}

bool all_settled(const std::vector<GridCell>& cells, const std::filesystem::path& folder) {
  return std::all_of(cells.begin(), cells.end(), [&](const GridCell& cell) {
    return is_settled(cell_state(cell_files(folder, cell)));
  });
}

int run(const Job& job, const Grid& grid, const SweepOptions& options, const std::string& command,
        ProgramOutput& output) {
  const std::vector<GridCell> cells = chosen_cells(grid, options.cell);
  require_program(program_beside_us("gradsync-train"));
  // Batch systems send SIGUSR1 ahead of a time limit.
  const StopSignals signals({SIGINT, SIGTERM, SIGHUP, SIGUSR1});
  const StopRequests requests = [&] { return signals.count(); };
  const auto launcher = make_launcher(resolved_launcher(options.launcher), job, grid, requests);
  require_room(cells, job.results, *launcher);
  // Two tasks of a job array may both find the grid complete, and print its tables.
  const bool alone = options.cell.empty() && !all_settled(cells, job.results);
  const ResultsFolder folder(job, grid, alone ? FolderUse::kWholeGrid : FolderUse::kOneCell);
  const GridOutcome outcome =
      run_grid(cells, folder.path(), *launcher, recorded_ladders(grid.cells, folder.path()),
               requests, output.progress());
  print_summary(output.progress(), outcome, cells.size());
  const bool tables =
      options.cell.empty() && !outcome.stopped && outcome.already + outcome.done > 0;
  const int reported = tables ? print_report(job, output.quiet()) : 0;
  output.add(status_table(job.name, grid_progress(grid.cells, folder.path())));
  output.write_json();
  require_complete(outcome, cells.size(), command);
  return reported;
}

int run_sweep(int argc, char** argv) {
  const SweepCommand command = read_sweep_command(argc, argv);
  const ParsedCommandLine& given = command.given;
  if (const auto text = answer(sweep_help(), sweep_option_table(), given))
    return std::cout << *text, 0;

  check_variables();
  ProgramOutput output(given, kProgram);
  const SweepOptions& options = command.options;
  if (options.launcher == "slurm") take_site_data();
  const Job job = requested_job(command);
  const FolderGrid there = grid_in_folder(job, expand(job));
  const Grid& grid = there.grid;
  for (const auto& remark : grid.remarks)
    output.progress() << kProgram << ": " << remark << '\n';
  const std::string launcher = resolved_launcher(options.launcher);
  if (options.status) {
    print_status(job, there, output);
    return output.write_json(), 0;
  }
  there.require_same(job.results);
  if (options.list) return list_cells(job, grid);
  if (launcher == "slurm") return submit_grid(job, grid, command, std::cout);
  if (options.dry_run)
    return print_commands(job, chosen_cells(grid, options.cell),
                          *make_launcher(launcher, job, grid, [] { return 0; }));
  return run(job, grid, options, shell_text({{}, std::vector<std::string>(argv, argv + argc)}),
             output);
}

}  // namespace

int main(int argc, char** argv) {
  return gradsync::run_program(kProgram, [&] { return run_sweep(argc, argv); });
}
