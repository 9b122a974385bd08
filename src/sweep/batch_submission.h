#pragma once

#include <filesystem>
#include <iosfwd>
#include <vector>

#include "sweep/batch_scripts.h"

namespace gradsync::sweep {

/// Writes the scripts into `folder` (made if missing; a file that holds something else keeps its
/// name, the new one is then called <name>-2.sbatch and so on) and submits them, each to begin when
/// the one before it has ended, the last when all have. One line a job on `out`.
/// Throws Error kCannotCreate, kEnvironment if sbatch is missing or refuses a script.
void submit_scripts(const std::vector<BatchScript>& scripts, const std::filesystem::path& folder,
                    std::ostream& out);

/// The scripts and the commands that would submit them. Writes and submits nothing.
void print_scripts(const std::vector<BatchScript>& scripts, const std::filesystem::path& folder,
                   std::ostream& out);

}  // namespace gradsync::sweep
