#pragma once

#include <filesystem>

#include "base/file.h"
#include "sweep/launcher.h"

namespace gradsync::sweep {

/// Makes room for a new run: what an earlier one left is renamed, never deleted: its journal to
/// <cell>.interrupted-N.journal, a run file of a failed run to <cell>.interrupted-N.run,
/// its folder of checkpoints to <cell>.interrupted-N.checkpoints.
void set_aside_leftovers(const std::filesystem::path& folder, const GridCell& cell);

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
/// cell is in both, or if a cell has the name of another run. Throws Error kUsage if the folder
/// holds run files of no grid, kBadData if its grid.json is damaged. Writes nothing; a missing
/// folder is an empty one.
FolderGrid grid_in_folder(const Job& job, const Grid& grid);

/// Makes the folder and those above it. Throws Error kCannotCreate.
void make_folder(const std::filesystem::path& folder);

/// Whether a sweep runs the whole grid or, beside sweeps that run others, a single cell or none.
enum class FolderUse { kWholeGrid, kOneCell };

/// The results folder of a sweep in progress: made if missing, locked against a second sweep (the
/// lock outlives a killed sweep for as long as its mpirun runs), with its cells in grid.json.
class ResultsFolder {
 public:
  /// Throws Error kCannotCreate if the folder or its lock cannot be made, kUsage if the lock is
  /// taken, and what grid_in_folder and require_same throw.
  ResultsFolder(const Job& job, const Grid& grid, FolderUse use = FolderUse::kWholeGrid);

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  UniqueFd lock_;
};

}  // namespace gradsync::sweep
