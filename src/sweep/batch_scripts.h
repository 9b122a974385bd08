#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "sweep/grid.h"
#include "sweep/job_file.h"

namespace gradsync::sweep {

/// A script for sbatch.
struct BatchScript {
  std::string name;  ///< "2x4": the file is <results>/sbatch/<name>.sbatch
  std::string what;  ///< "2 nodes × 4 ranks, 3 cells"
  std::string text;
};

/// What the scripts start: commands that work in `folder`, where the sweep was started.
struct BatchCommands {
  std::filesystem::path folder;
  std::vector<std::string> sweep;            ///< gradsync-sweep in front of the options of a task
  std::vector<std::string> trainer_options;  ///< behind the `--`
  std::vector<std::string> report;
};

/// One script for all cells of a shape (nodes, ranks on each, threads): a job array that runs one
/// cell a task, one task at a time, so that cells do not share the network. A task that is stopped
/// ahead of its time limit goes back into the queue if it got on, at most GRADSYNC_MAX_RESTARTS (5)
/// times. Throws Error kUsage if ranks per node are not known, or a name cannot stand in a script.
std::vector<BatchScript> cell_scripts(const Job& job, const std::vector<GridCell>& cells,
                                      const BatchCommands& commands);

/// The script that writes the report's tables.
BatchScript report_script(const Job& job, const BatchCommands& commands);

}  // namespace gradsync::sweep
