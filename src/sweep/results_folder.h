#pragma once

#include <filesystem>

#include "support/file.h"
#include "sweep/launcher.h"

namespace gradsync::sweep {

/// Makes room for a new run: what an earlier one left is renamed, never deleted: its journal to
/// <cell>.interrupted-N.journal, a run file of a failed run to <cell>.interrupted-N.run,
/// its folder of checkpoints to <cell>.interrupted-N.checkpoints.
void set_aside_leftovers(const std::filesystem::path& folder, const GridCell& cell);

/// The grid that a results folder holds, as the sweep that made the folder wrote it.
struct FolderGrid {
  std::vector<GridCell> cells;
  std::vector<std::string> differences;  ///< from the job's: "lr: 0.1 there, 0.2 here"
};

/// The grid of the folder; `grid`, which is the job's, where there is none yet. Throws Error kUsage
/// if the folder holds run files of no grid, kBadData if its grid.json is damaged. Writes nothing.
FolderGrid grid_of_folder(const std::filesystem::path& folder, const Job& job, const Grid& grid);

/// Throws Error kUsage if the folder holds another grid, naming what differs, and what
/// grid_of_folder throws. A missing folder is fine. Writes nothing.
void require_same_grid(const std::filesystem::path& folder, const Job& job, const Grid& grid);

/// The grid with its cells in the order of the folder's grid, where that is the same one: so a
/// number of a cell keeps its meaning when lines of the job file change places. Throws as
/// grid_of_folder.
Grid in_order_of_folder(const Job& job, Grid grid);

/// Makes the folder and those above it. Throws Error kCannotCreate.
void make_folder(const std::filesystem::path& folder);

/// Whether a sweep runs the whole grid or, beside sweeps that run others, a single cell or none.
enum class FolderUse { kWholeGrid, kOneCell };

/// The results folder of a sweep in progress: made if missing, locked against a second sweep (the
/// lock outlives a killed sweep for as long as its mpirun runs), with the grid in grid.json.
class ResultsFolder {
 public:
  /// Throws Error kCannotCreate if the folder or its lock cannot be made, kUsage if the lock is
  /// taken, and what require_same_grid throws.
  ResultsFolder(const Job& job, const Grid& grid, FolderUse use = FolderUse::kWholeGrid);

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  UniqueFd lock_;
};

}  // namespace gradsync::sweep
