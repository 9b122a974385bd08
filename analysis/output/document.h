#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gradsync::report {

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
