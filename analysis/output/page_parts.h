// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "analysis/output/page.h"

/// The parts of the page, each a piece of HTML.
namespace gradsync::report {

/// "lenet: 4 modes on 1 to 4 ranks".
std::string study_title(const RunSet& set);

/// Cards with what a reader looks for first.
std::string key_figures(const RunSet& set);

/// Hardware, versions, dates and data as the run files record them, and the list of runs.
std::string what_was_run(const RunSet& set, bool with_hosts);

std::string page_figure(const NamedChart& plot, std::size_t number);

/// Folded, unless `open`.
std::string page_table(const Table& table, bool open);

/// What holds for all numbers of runs, and the formulas.
std::string how_computed(const std::vector<Table>& tables);

}  // namespace gradsync::report
