// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "analysis/plots/plots.h"
#include "analysis/read/run_set.h"
#include "analysis/verdict/verdict.h"
#include "base/table.h"

namespace gradsync::report {

/// Cards with what a reader looks for first.
std::string key_figures(const RunSet& set);

/// What the page shows, beside what it takes from the runs themselves.
struct PageContent {
  std::vector<VerdictClause> verdict;
  std::vector<NamedChart> charts;
  std::vector<Table> tables;
  std::string title = {};  ///< empty: what the runs are
  /// Whether host names and absolute paths of the runs are shown; else hosts are numbered, and
  /// paths begin at the folder of a run.
  bool places = false;
};

/// The report as one HTML document that needs nothing else: no network, no script but a few lines,
/// no font, no picture. Every number of a table carries the id of its claim (number_id). The same
/// runs give the same bytes; what comes from files is escaped. A table longer than kMostPageRows
/// ends there, with a note.
std::string render_page(const RunSet& set, const PageContent& content);

inline constexpr std::size_t kMostPageRows = 500;

}  // namespace gradsync::report
