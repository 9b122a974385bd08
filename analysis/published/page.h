#pragma once

#include <string>
#include <vector>

#include "base/table.h"

/// A page of headings, paragraphs, lists and tables that prints as text and as Markdown.
namespace gradsync::report::published {

struct Block {
  enum class Kind { kTitle, kHeading, kSubheading, kParagraph, kItem, kSubitem, kTable };
  Kind kind = Kind::kParagraph;
  std::string lead;  ///< of an item, set off from its text
  std::string text;
  Table table = {};  ///< of a kTable
};

using Page = std::vector<Block>;

/// Lines of at most 100 columns, but for tables and long words.
std::string page_text(const Page& page);
std::string page_markdown(const Page& page);
/// Without the title; headings from <h3> on, each with the id of report_anchor.
std::string page_html(const Page& page);
std::string report_anchor(const std::string& heading);

/// "line 5", "lines 3-5, 9": sorted, without repeats.
std::string lines_text(std::vector<std::size_t> lines);

}  // namespace gradsync::report::published
