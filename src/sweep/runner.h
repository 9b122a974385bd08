#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "sweep/batch_ladder.h"
#include "sweep/launcher.h"

namespace gradsync::sweep {

/// How a grid ended.
struct GridOutcome {
  struct Failed {
    std::string cell, message;
  };
  std::size_t already = 0;  ///< complete before this sweep
  std::size_t done = 0;     ///< run now
  std::vector<Failed> failed;
  std::vector<Failed> too_large;  ///< out of memory, now or before, and what was not run for it
  bool stopped = false;  ///< on request, with cells left over; `stopped_cell` may have been running
  std::string stopped_cell;
};

/// Throws what `launcher.require_room` throws, if one of the cells that are not complete does not
/// fit where it would run. Writes nothing.
void require_room(const std::vector<GridCell>& cells, const std::filesystem::path& folder,
                  const Launcher& launcher);

/// Runs the cells that are not complete, in order, one line a cell on `progress`. A cell that fails
/// is recorded in the folder and the grid continues; one that succeeds loses its earlier record.
/// One that runs out of memory is a result: it ends its ladder (`ladders` holds those that ended
/// before), and larger batches are recorded as not run. It is tried again once its record is gone.
/// A request to stop, to us or to the run (which then ends with exit code 75), ends the grid.
/// `folder` is a ResultsFolder's. Throws Error if cells cannot be started or recorded at all.
GridOutcome run_grid(const std::vector<GridCell>& cells, const std::filesystem::path& folder,
                     Launcher& launcher, BatchLadders ladders, const StopRequests& stop_requests,
                     std::ostream& progress);

/// What became of `all` cells.
void print_summary(std::ostream& out, const GridOutcome& outcome, std::size_t all);

/// Throws Error, with `command` to continue, if the grid was stopped (kStoppedEarly) or cells
/// failed (kCheckFailed).
void require_complete(const GridOutcome& outcome, std::size_t all, const std::string& command);

/// "about 40 s left", "about 3 min left", "about 2 h left".
std::string time_left_text(double seconds);

}  // namespace gradsync::sweep
