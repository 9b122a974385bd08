#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "analysis/read/run_set.h"

/// What Slurm's accounting knows of the steps in which runs were made.
namespace gradsync::report {

/// Joules by "JOB.STEP", both as numbers: "4711.0".
using StepEnergies = std::map<std::string, double>;

/// Reads what `sacct --parsable2 --format=JobIDRaw,ConsumedEnergyRaw` printed; other columns are
/// allowed, and lines before the titles. Steps without a value are left out. Throws Error:
/// kNoInput, kBadData (line, reason).
StepEnergies read_step_energies(const std::filesystem::path& path);

/// Of the step that a run was made in, which must not be that of another run of the set; NaN where
/// the run was not started by srun, accounting does not know its step, or has 0 J: Slurm writes 0
/// where nothing gathers energy.
double step_energy_j(const RunSet& set, const Run& run, const StepEnergies& energies);

}  // namespace gradsync::report
