// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "options/options.h"
#include "sweep/job_file.h"

namespace gradsync::sweep {

/// One run of a grid.
struct GridCell {
  /// model-sync-r<ranks>, the variant where there are several, then what else varies:
  /// "vgg11-ddp-r4-warmup-b64-x1". Unique in the grid, and a file name.
  std::string name;
  std::int64_t ranks = 1;
  std::int64_t repeat = 1;                                   ///< from 1
  std::vector<std::pair<std::string, std::string>> options;  ///< of the trainer, without `output`
  std::string variant = {};                                  ///< empty: the job has none
  /// Place, from 1, in the grid or in the results folder: see grid_in_folder().
  std::size_t number = 0;
  /// Places, from 0, in the order of the job file: its own and that of the first cell of its job.
  std::size_t written = 0, job = 0;

  /// The value of an option that the cell sets; null where it does not.
  const std::string* option(const std::string& key) const;
};

/// The control of an experiment whose reference is `cell`, as a cell: it has files alone.
GridCell control_of(const GridCell& cell);

struct Grid {
  std::vector<GridCell> cells;       ///< in the order in which they run
  std::vector<std::string> remarks;  ///< exclusions that leave nothing out, options of no contender
};

/// The cells of one start of the trainer: one, or contenders of each other, the reference first.
using CellJob = std::vector<GridCell>;

/// All combinations of the job's values without the excluded ones, each checked as the trainer
/// would check it. Without `order = random` the last axis varies fastest, repeats fastest of all.
/// Throws Error kUsage if nothing is left, if there are more than 100,000, or if a cell is
/// impossible.
Grid expand(const Job& job);

/// The jobs of some cells of a grid, each where the first of its cells is: if the job file
/// interleaves, cells of the same ranks and repeat that differ only in options which a contender of
/// `gradsync-train --compare` may have are one job.
std::vector<CellJob> jobs_of(const std::vector<GridCell>& cells);

/// What the trainer is started with: the only cell, or the name and the common options of the cells
/// and --compare, which has in a contender what differs. The time limit is that of all together,
/// the control included.
GridCell start_of(const CellJob& cells);

/// The cell of a number or of a name. Throws Error kUsage.
const GridCell& cell_named(const Grid& grid, const std::string& text);

/// The trainer's settings in the cell, the batch resolved for its ranks. Throws Error kUsage if
/// they are impossible, with the lines of `job` where it is given.
TrainOptions train_options_of(const GridCell& cell, const Job* job = nullptr);

/// Equal for two cells if they are the same run: ranks, repeat and every option of the trainer but
/// those that set when a run stops and resumes (time-limit, checkpoint-every, resume).
std::string identity_of(const GridCell& cell);

/// A job's grid in its results folder, whose grid.json lists the cells of every grid that was run
/// there. Cells that both have are the same runs, whatever the other cells of either grid are.
struct FolderGrid {
  /// The job's, each cell by the name and number that the folder has for it. A cell that is new
  /// there has the next numbers.
  Grid grid;
  std::vector<GridCell> cells;  ///< the folder's, then the new ones, by number
  std::size_t recorded = 0;     ///< of `cells`: the folder's
  /// What makes the job's grid another one: "lr: 0.1 there, 0.2 here". Then `grid` is as it was
  /// given, and `cells` are the folder's alone.
  std::vector<std::string> differences = {};

  /// Throws Error kUsage if there are differences, naming them and the folder.
  void require_same(const std::filesystem::path& folder) const;
};

/// `grid` in the job's results folder. It is another grid if the launcher's options differ, if no
/// cell is in both, or if a cell has the name of another run; a grid of which nothing was ever
/// started gives way to it. Throws Error kUsage if the folder holds run files of no grid, kBadData
/// if its grid.json is damaged or names a cell as the sweep never does, kCannotCreate if the folder
/// cannot be read. Writes nothing; a missing folder is an empty one.
FolderGrid grid_in_folder(const Job& job, const Grid& grid);

/// Writes the grid.json of a folder whose cells are `there.cells`, if there are new ones.
void record_grid(const Job& job, const FolderGrid& there);

}  // namespace gradsync::sweep
