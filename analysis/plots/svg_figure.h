#pragma once

#include <string>

#include "analysis/plots/chart.h"

namespace gradsync::report {

/// A plot as a file of its own: title, panels in rows, legend, caption; black on white. Needs no
/// other file, and is the same on each machine.
std::string svg_figure(const Chart& chart);

}  // namespace gradsync::report
