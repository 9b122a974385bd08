#pragma once

#include "sweep/grid.h"
#include "sweep/sweep_options.h"

namespace gradsync::sweep {

/// Writes scripts into <results>/sbatch for the chosen cells that are not settled and one for the
/// tables behind them, and submits them; with --dry-run prints what it would do. Returns the exit
/// code. Throws what require_same_grid, cell_scripts and submit_scripts throw.
int submit_grid(const Job& job, const Grid& grid, const SweepCommand& command);

}  // namespace gradsync::sweep
