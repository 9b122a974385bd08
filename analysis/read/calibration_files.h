#pragma once

#include <string>

#include "analysis/read/run_set.h"

/// Calibration in a file of its own: gradsync-calibrate's beside the runs, for those that hold
/// none, and --calibration.
namespace gradsync::report {

/// Whether a file holds calibration and nothing of a training run.
bool is_calibration_file(const RunReader& file);

/// Why the calibration of a file says nothing about a run: "hosts: a, b in the run, c, d in the
/// calibration". Empty if ranks, the host and device of each rank and MPI itself are the same.
std::string why_not_calibrated_by(const RunReader& run, const RunReader& file);

/// Reads the files of --calibration into the set, those of the same ranks as one.
void add_chosen_calibration(const std::vector<CurveFile>& files, RunSet& set);

/// Gives each run the chosen calibration of its ranks; where there is none, and the run holds none
/// itself, that of a file it can be held against, the latest if there are several. Names in the
/// remarks of the set the files that are not used, and why.
void assign_calibration_files(RunSet& set);

}  // namespace gradsync::report
