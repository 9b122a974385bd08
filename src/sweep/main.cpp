// SPDX-License-Identifier: BSD-3-Clause
// gradsync-sweep: runs the grid of a job file, here, in a Slurm job or as jobs of Slurm.
//
//   gradsync-sweep jobs/demo.cfg
//   gradsync-sweep jobs/sync-modes.cfg --dry-run
#include <algorithm>
#include <csignal>
#include <iostream>

#include <fmt/format.h>

#include "base/cli/program_output.h"
#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "sweep/cell_store.h"
#include "sweep/grid.h"
#include "sweep/launcher.h"
#include "sweep/runner.h"
#include "sweep/slurm.h"

namespace {

using namespace gradsync;
using namespace gradsync::sweep;

const std::string kProgram = "gradsync-sweep";

int list_cells(const Plan& plan) {
  std::vector<GridCell> cells = plan.there.grid.cells;
  std::ranges::sort(cells,
                    [](const GridCell& a, const GridCell& b) { return a.number < b.number; });
  for (const auto& cell : cells)
    std::cout << fmt::format("{:15}{:4}  {}\n",
                             state_text(cell_state(cell_files(plan.job.results, cell))),
                             cell.number, cell.name);
  return 0;
}

// The progress of the grid in the folder: this shell need not have the settings of the job that
// runs.
int print_status(const Plan& plan, ProgramOutput& output) {
  const FolderGrid& there = plan.there;
  const std::filesystem::path& results = plan.job.results;
  for (const auto& difference : there.differences)
    std::cerr << fmt::format("{}: shown is the grid in {}: {}\n", kProgram, results.string(),
                             difference);
  const auto& cells = there.differences.empty() ? there.grid.cells : there.cells;
  output.print(status_table(plan.job.name, grid_progress(cells, results), results));
  return output.write_json(), 0;
}

int print_commands(const Plan& plan, const std::string& launcher_name) {
  const auto launcher = make_launcher(launcher_name, plan.job, plan.there.grid, [] { return 0; });
  const std::filesystem::path& folder = plan.job.results;
  const std::vector<GridCell> cells = plan.cells_to_run();
  if (cells.empty()) std::cerr << "all cells are there already\n";
  for (const auto& cell : cells)
    launcher->require_room(cell);
  for (const CellJob& job : jobs_of(cells))
    for (const CellStart& start : starts_of(folder, job))
      std::cout << shell_text(
                       launcher->command(start_of(start.cells), job_files(folder, start.cells)))
                << '\n';
  return 0;
}

// The family of a launcher and the options that its ranks are started with.
int print_mpirun(const std::string& program) {
  const MpirunFamily family = ask_mpirun(program).family;
  std::cout << family.name << (family.options.empty() ? "" : " ") << family.options << '\n';
  return 0;
}

int run_sweep(int argc, char** argv) {
  const std::vector<std::string> words(argv, argv + argc);
  const SweepCommand command = read_sweep_command(argc, argv);
  const ParsedCommandLine& given = command.given;
  if (const auto text = answer(sweep_help(), sweep_option_table(), given))
    return std::cout << *text, 0;

  require_writable(given.json);
  ProgramOutput output(given, kProgram);
  const SweepOptions& options = command.options;
  SlurmSite site;
  if (options.launcher == "slurm") take_site_data(site = this_site());
  const Plan plan = plan_of(command);
  for (const auto& remark : plan.there.grid.remarks)
    output.progress() << kProgram << ": " << remark << '\n';
  if (options.status) return print_status(plan, output);
  plan.there.require_same(plan.job.results);
  if (options.list) return list_cells(plan);
  const std::string launcher = resolved_launcher(options.launcher);
  if (launcher == "slurm") return submit_grid(plan, site, std::cout);
  if (options.dry_run) return print_commands(plan, launcher);
  // Batch systems send SIGUSR1 ahead of a time limit.
  const StopSignals signals({SIGINT, SIGTERM, SIGHUP, SIGUSR1});
  return run_plan(
      plan, shell_text({{}, words}), [&] { return signals.count(); }, output);
}

int run_command(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  const std::vector<std::string> rest(argv + std::min(2, argc), argv + argc);
  if (first == "submit") return submit_template(rest, std::cout);
  if (first == "job") return run_in_job(rest);
  if (first == "mpirun") return print_mpirun(rest.empty() ? "mpirun" : rest.front());
  return run_sweep(argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  return gradsync::run_program(kProgram, [&] { return run_command(argc, argv); });
}
