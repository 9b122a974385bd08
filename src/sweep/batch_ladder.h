#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sweep/grid.h"

namespace gradsync::sweep {

/// The ladders of a grid: cells that differ in the batch alone (repeats included). Where one ran
/// out of memory, as large or larger ones would too, and need not be tried.
class BatchLadders {
 public:
  /// Ends the cell's ladder at its batch.
  void end_at(const GridCell& cell);
  /// The smallest batch per rank that ended the cell's ladder, if the cell's is as large or larger.
  std::optional<std::int64_t> ended_at(const GridCell& cell) const;

 private:
  std::map<std::string, std::int64_t> smallest_;
};

/// The ladders that earlier sweeps of the folder found the end of.
BatchLadders recorded_ladders(const std::vector<GridCell>& cells,
                              const std::filesystem::path& folder);

/// Images that a rank of the cell holds at once.
std::int64_t batch_per_rank(const GridCell& cell);

}  // namespace gradsync::sweep
