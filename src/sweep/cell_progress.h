#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/table.h"
#include "sweep/cell_record.h"
#include "sweep/grid.h"

namespace gradsync::sweep {

/// How far a cell is, from its run file or its journal, which may be growing.
struct CellProgress {
  std::string cell;
  CellState state = CellState::kMissing;
  std::int64_t iterations = 0;
  std::int64_t wanted = 0;  ///< iterations; 0: not known
  double time_s;            ///< from the start of its run to its last iteration; NaN: none
  std::string message;      ///< why it failed, who runs it, or what is wrong with its file

  /// Share of its iterations that is done, 0 to 1; NaN if it is not known.
  double share() const;
};

/// The progress of all cells, in their order. How many iterations an epoch has is known from any
/// run of the folder. Never throws for a damaged file: its message says what is wrong.
std::vector<CellProgress> grid_progress(const std::vector<GridCell>& cells,
                                        const std::filesystem::path& folder);

/// Seconds until all cells that have neither ended nor failed are done, at the mean pace of those
/// that have begun; NaN if none has.
double seconds_left(const std::vector<CellProgress>& cells);

/// Iterations of the cell's whole run on a training set of so many images (0: not known); 0 if
/// they are not known.
std::int64_t iterations_wanted(const GridCell& cell, std::int64_t train_images);

/// The table of --status: a row a cell, and below it how many are in which state and how long the
/// rest will take.
Table status_table(const std::string& name, const std::vector<CellProgress>& cells);

}  // namespace gradsync::sweep
