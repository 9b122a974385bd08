#pragma once

#include <filesystem>
#include <string>

#include "analysis/plots/chart.h"

namespace gradsync::report {

/// Writes <name>.plot.csv (a table may have the name, too) and <name>.svg into `folder`, each whole
/// or not at all.
void write_figure(const Chart& chart, const std::string& name, const std::filesystem::path& folder);

/// Draws <name>.png and <name>.pdf from <name>.svg with librsvg, without dates, so that the same
/// numbers give the same bytes. Throws Error kEnvironment if rsvg-convert is missing, kInputOutput
/// with its words if it fails.
void draw_figure(const std::string& name, const std::filesystem::path& folder);

}  // namespace gradsync::report
