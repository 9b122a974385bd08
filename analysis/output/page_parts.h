#pragma once

#include <string>
#include <utility>
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

/// The formula of every column that has one, table by table.
std::string page_formulas(const std::vector<Table>& tables);

/// What holds for all numbers of runs, and the formulas.
std::string how_computed(const std::vector<Table>& tables);

/// A part of a document under a heading of its own.
struct DocumentSection {
  std::string id, head;
  std::string inside;  ///< HTML; a section without any is left out
};

/// One HTML document that needs nothing else: no network, no script but a few lines, no font.
struct Document {
  std::string title, kicker, when;  ///< text: the title, a line above it and one below
  std::vector<std::pair<std::string, std::string>> links;  ///< id and text of the contents
  std::string before;                                      ///< HTML after the first section
  std::vector<DocumentSection> sections;                   ///< the first one is the answer
  std::string made_from;  ///< text: "the run files named above; the same files give the same page"
};

std::string render_document(const Document& document);

}  // namespace gradsync::report
