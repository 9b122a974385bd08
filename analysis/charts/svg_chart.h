#pragma once

#include <string>

#include "analysis/charts/chart.h"

namespace gradsync::report {

/// One panel as an <svg> to stand in a page: no size of its own (it takes the width it is given),
/// no colours of text and axes (those of the page, by the classes ax, grid, tick, in light and
/// dark), a <title> with the value on every mark but faint points, ids that begin with `id`.
/// Everything that comes from files is escaped. A line longer than some hundred points is thinned.
std::string svg_panel(const Chart& chart, const ChartPanel& panel, const std::string& id);

/// The legend of a panel: a list of samples and labels.
std::string svg_legend(const ChartPanel& panel, const std::string& id);

}  // namespace gradsync::report
