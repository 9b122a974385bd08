#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "analysis/charts/chart.h"

namespace gradsync::report {

/// A plot as a file of its own: title, panels in rows, legend, caption; black on white. Needs no
/// other file, and is the same on each machine.
std::string svg_figure(const Chart& chart);

/// `text` broken at spaces into lines of at most `width` characters.
std::vector<std::string> wrapped(const std::string& text, std::size_t width);

}  // namespace gradsync::report
