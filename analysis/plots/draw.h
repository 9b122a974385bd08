#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "analysis/plots/registry.h"

namespace gradsync {

/// Writes <name>.csv and <name>.gnuplot into `folder`, each whole or not at all.
void write_figure(const Figure& figure, const std::string& name,
                  const std::filesystem::path& folder);

/// Draws <name>.png and <name>.svg from them; returns their paths. Throws Error kEnvironment if
/// gnuplot is missing, kInputOutput with gnuplot's words if it fails.
std::vector<std::filesystem::path> draw_figure(const std::string& name,
                                               const std::filesystem::path& folder);

}  // namespace gradsync
