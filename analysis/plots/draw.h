#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "analysis/charts/gnuplot_chart.h"

namespace gradsync::report {

/// Writes <name>.plot.csv (a table may have the name, too) and <name>.gnuplot into `folder`, each
/// whole or not at all.
void write_figure(const Figure& figure, const std::string& name,
                  const std::filesystem::path& folder);

/// Draws <name>.png, .svg and .pdf from them, without dates, so that the same numbers give the same
/// bytes; returns their paths. Throws Error kEnvironment if
/// gnuplot is missing, kInputOutput with gnuplot's words if it fails.
std::vector<std::filesystem::path> draw_figure(const std::string& name,
                                               const std::filesystem::path& folder);

}  // namespace gradsync::report
