#pragma once

#include <vector>

#include "support/table.h"
#include "sweep/cell_progress.h"

namespace gradsync::sweep {

/// The table of --status: a row a cell, and below it how many are in which state and how long the
/// rest will take.
Table status_table(const std::string& name, const std::vector<CellProgress>& cells);

}  // namespace gradsync::sweep
