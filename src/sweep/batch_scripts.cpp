#include "sweep/batch_scripts.h"

#include <map>
#include <tuple>

#include <fmt/format.h>

#include "support/error.h"
#include "sweep/allocation.h"
#include "sweep/launcher.h"

namespace gradsync::sweep {

namespace {

// Cells of one shape share a job array.
struct Group {
  Shape shape;
  std::int64_t threads = 0;  // a rank; 0: not set
  auto operator<=>(const Group&) const = default;
};

std::int64_t ranks_per_node(const Job& job, const std::vector<GridCell>& cells) {
  if (job.ranks_per_node > 0) return job.ranks_per_node;
  for (const auto& cell : cells)
    if (cell.ranks > 1)
      throw Error(
          ExitCode::kUsage,
          fmt::format("cell {}: how many of its {} ranks go on one node?", cell.name, cell.ranks),
          "say so with --ranks-per-node N or the key ranks-per-node");
  return 1;
}

std::map<Group, std::vector<GridCell>> grouped(const Job& job, const std::vector<GridCell>& cells) {
  const std::int64_t on_node = ranks_per_node(job, cells);
  std::map<Group, std::vector<GridCell>> groups;
  for (const auto& cell : cells)
    groups[{shape_of(cell.ranks, on_node), train_options_of(cell).threads}].push_back(cell);
  return groups;
}

// In an #SBATCH line, which is no shell's. % is sbatch's own sign.
std::string log_in(const std::filesystem::path& folder, const std::string& name) {
  if (folder.string().find_first_of("\"\\\n%") != std::string::npos)
    throw Error(
        ExitCode::kUsage,
        fmt::format("the folder \"{}\" cannot stand in a script for sbatch", folder.string()),
        "use a name without quotes, backslashes, line breaks and %");
  return fmt::format("\"{}\"", (folder / name).string());
}

std::string name_of(const Group& group) {
  std::string name = fmt::format("{}x{}", group.shape.nodes, group.shape.ranks_per_node);
  return group.threads > 0 ? name + fmt::format("x{}", group.threads) : name;
}

std::string head(const Job& job, const std::string& name, const BatchCommands& commands,
                 const std::string& log) {
  const auto folder = commands.folder / job.results / "sbatch";
  return fmt::format(
      "#SBATCH --job-name={}-{}\n"
      "#SBATCH --output={}\n"
      "#SBATCH --open-mode=append\n",
      job.name, name, log_in(folder, log));
}

// The person's own options come last: they count.
std::string own_options(const Job& job) {
  if (job.sbatch_options.empty()) return "";
  return fmt::format("#SBATCH {}\n", fmt::join(job.sbatch_options, " "));
}

std::string resources(const Job& job, const Group& group, std::size_t cells) {
  std::string text = fmt::format(
      "#SBATCH --nodes={}\n"
      "#SBATCH --ntasks-per-node={}\n",
      group.shape.nodes, group.shape.ranks_per_node);
  if (group.threads > 0) text += fmt::format("#SBATCH --cpus-per-task={}\n", group.threads);
  if (job.gpus_per_rank > 0)
    text +=
        fmt::format("#SBATCH --gpus-per-node={}\n", group.shape.ranks_per_node * job.gpus_per_rank);
  return text + fmt::format(
                    "#SBATCH --array=1-{}%1\n"
                    "#SBATCH --signal=USR1@120\n"
                    "#SBATCH --requeue\n",
                    cells);
}

std::string cell_list(const std::vector<GridCell>& cells) {
  std::string text = "cells=(\n";
  for (const auto& cell : cells)
    text += "  " + shell_text({{}, {cell.name}}) + '\n';
  return text + ")\n";
}

std::string task(const Job& job, const BatchCommands& commands) {
  std::string behind;
  if (!commands.trainer_options.empty())
    behind = " -- " + shell_text({{}, commands.trainer_options});
  return "cell=${cells[SLURM_ARRAY_TASK_ID - 1]}\n"
         "journal=" +
         shell_text({{}, {job.results.string()}}) +
         "/$cell.h5.journal\n"
         "journal_size() { stat -c %s \"$journal\" 2>/dev/null || echo 0; }\n"
         "before=$(journal_size)\n"
         "code=0\n" +
         shell_text({{}, commands.sweep}) + " --launcher srun --cell \"$cell\"" + behind +
         " || code=$?\n"
         "# Stopped ahead of the time limit: back into the queue, if it got on and not for ever.\n"
         "if ((code == 75 && $(journal_size) > before)) &&\n"
         "  ((${SLURM_RESTART_COUNT:-0} < ${GRADSYNC_MAX_RESTARTS:-5})) &&\n"
         "  [[ $(squeue -h -j \"$SLURM_JOB_ID\" -o %T) == RUNNING ]]; then\n"
         "  scontrol requeue \"$SLURM_JOB_ID\" && sleep 60\n"
         "fi\n"
         "exit \"$code\"\n";
}

std::string start(const BatchCommands& commands) {
  return "set -euo pipefail\ncd " + shell_text({{}, {commands.folder.string()}}) + '\n';
}

}  // namespace

std::vector<BatchScript> cell_scripts(const Job& job, const std::vector<GridCell>& cells,
                                      const BatchCommands& commands) {
  std::vector<BatchScript> scripts;
  for (const auto& [group, members] : grouped(job, cells)) {
    const std::string what = fmt::format("{}, {} cell{}", shape_text(group.shape), members.size(),
                                         members.size() == 1 ? "" : "s");
    const std::string comment = "#!/bin/bash\n# Written by gradsync-sweep: " + what +
                                ", a task each, one after the other.\n";
    const std::string name = name_of(group);
    scripts.push_back({name, what,
                       comment + head(job, name, commands, "%x-%A_%a.log") +
                           resources(job, group, members.size()) + own_options(job) +
                           start(commands) + cell_list(members) + task(job, commands)});
  }
  return scripts;
}

BatchScript report_script(const Job& job, const BatchCommands& commands) {
  return {"report", "tables",
          "#!/bin/bash\n# Written by gradsync-sweep: the tables of the cells that are done.\n" +
              head(job, "report", commands, "%x-%j.log") +
              "#SBATCH --nodes=1\n#SBATCH --ntasks=1\n" + own_options(job) + start(commands) +
              shell_text({{}, commands.report}) + '\n'};
}

}  // namespace gradsync::sweep
