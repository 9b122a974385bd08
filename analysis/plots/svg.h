// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "analysis/plots/chart.h"

namespace gradsync::report {

/// `text` with &, <, >, " and ' as entities and control characters as spaces, for text and for
/// values of attributes in double quotes. What is not UTF-8 becomes U+FFFD.
std::string html_text(std::string_view text);

/// `text` as a part of an id or of a claim: characters other than letters, digits, '-' and '_'
/// become '-'.
std::string id_text(std::string_view text);

/// How marks look; colors are those of the series.
extern const std::string_view kSvgMarkStyle;

struct SvgSize {
  double width = 0, height = 0;  ///< of the view box
};
SvgSize svg_size(const Chart& chart, const ChartPanel& panel);

/// One panel as an <svg> to stand in a page or a figure: its place and size only by `attributes`,
/// no colors of text and axes (those around it, by the classes ax, grid, tick, in light and
/// dark), a <title> with the value on every mark but faint points, ids that begin with `id`.
/// Everything that comes from files is escaped. Of a smooth line longer than some hundred
/// points some are left out.
std::string svg_panel(const Chart& chart, const ChartPanel& panel, const std::string& id,
                      const std::string& attributes = "");

/// What stands before the label of a series in a legend, 22 wide and 14 high.
std::string svg_sample(const ChartSeries& series, const std::string& id);

/// The legend of a panel: a list of samples and labels.
std::string svg_legend(const ChartPanel& panel, const std::string& id);

/// A plot as a file of its own: title, panels in rows, legend, caption; black on white. Needs no
/// other file, and is the same on each machine.
std::string svg_figure(const Chart& chart);

/// Writes <name>.plot.csv (a table may have the name, too) and <name>.svg into `folder`, each whole
/// or not at all.
void write_figure(const Chart& chart, const std::string& name, const std::filesystem::path& folder);

/// Draws <name>.png and <name>.pdf from <name>.svg with librsvg, without dates, so that the same
/// numbers give the same bytes. Throws Error kEnvironment if rsvg-convert is missing, kInputOutput
/// with its words if it fails.
void draw_figure(const std::string& name, const std::filesystem::path& folder);

}  // namespace gradsync::report
