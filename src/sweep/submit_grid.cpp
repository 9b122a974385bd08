#include "sweep/submit_grid.h"

#include <iostream>

#include "sweep/batch_submission.h"
#include "sweep/cell_state.h"
#include "sweep/local_launcher.h"
#include "sweep/report_step.h"
#include "sweep/results_folder.h"

namespace gradsync::sweep {

namespace {

// What a task of a job array starts, to come to the same grid.
BatchCommands batch_commands(const Job& job, const SweepCommand& command) {
  BatchCommands commands{std::filesystem::current_path(),
                         {program_beside_us("gradsync-sweep").string(),
                          command.given.positional.front(), "--results", job.results.string()},
                         {},
                         report_command(job)};
  for (const auto& text : command.options.set)
    append(commands.sweep, {"--set", text});
  if (const std::int64_t count = command.options.ranks_per_node; count > 0)
    append(commands.sweep, {"--ranks-per-node", std::to_string(count)});
  GridCell options;
  for (const auto& option : command.trainer_options)
    options.options.emplace_back(option.key, option.value);
  commands.trainer_options = trainer_arguments(options);
  return commands;
}

}  // namespace

int submit_grid(const Job& job, const Grid& grid, const SweepCommand& command) {
  require_same_grid(job.results, job, grid);
  std::vector<GridCell> cells;
  for (const auto& cell : chosen_cells(grid, command.options.cell))
    if (!is_settled(cell_state(cell_files(job.results, cell)))) cells.push_back(cell);
  if (cells.empty()) return std::cerr << "all cells are there already\n", 0;
  const BatchCommands commands = batch_commands(job, command);
  std::vector<BatchScript> scripts = cell_scripts(job, cells, commands);
  scripts.push_back(report_script(job, commands));
  const auto folder = job.results / "sbatch";
  if (command.options.dry_run) return print_scripts(scripts, folder, std::cout), 0;
  const ResultsFolder checked(job, grid, FolderUse::kOneCell);
  submit_scripts(scripts, folder, std::cout);
  return 0;
}

}  // namespace gradsync::sweep
