#pragma once

#include "analysis/plots/registry.h"
#include "base/table.h"

/// One function a plot, each in the file of its name; plots.def lists them.
namespace gradsync::report {

#define GRADSYNC_PLOT(id, input, ...) std::optional<Chart> make_##id##_plot(const input&);
#include "analysis/plots/plots.def"
#undef GRADSYNC_PLOT

/// The plot of table `prediction`, found by the names of its columns; nothing if none of its cells
/// was measured.
std::optional<Chart> prediction_chart(const Table& table);

}  // namespace gradsync::report
