#include "analysis/output/document.h"

#include <fmt/format.h>

#include "analysis/output/page_parts.h"
#include "analysis/plots/html.h"
#include "base/version.h"

namespace gradsync::report {

namespace {

std::string document_head(const std::string& title) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n"
      "<style>\n{}</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">To the content</a>\n",
      html_text(title), page_style());
}

std::string headline(const Document& document) {
  return fmt::format(
      "<header>\n<p class=\"kicker\">{}</p>\n<h1>{}</h1>\n<p class=\"when\">{}</p>\n</header>\n",
      html_text(document.kicker), html_text(document.title), html_text(document.when));
}

std::string contents(const Document& document) {
  std::string text = "<nav aria-label=\"Contents\"><details><summary>Contents</summary>\n<ul>\n";
  for (const auto& [id, name] : document.links)
    text += fmt::format("<li><a href=\"#{}\">{}</a></li>\n", id, html_text(name));
  return text + "</ul></details></nav>\n";
}

std::string section(const DocumentSection& one) {
  if (one.inside.empty()) return "";
  return fmt::format(
      "<section id=\"{0}\" aria-labelledby=\"{0}-head\">\n<h2 "
      "id=\"{0}-head\">{1}</h2>\n{2}</section>\n",
      one.id, one.head, one.inside);
}

}  // namespace

std::string render_document(const Document& document) {
  std::string text = document_head(document.title) + headline(document) + "<main id=\"main\">\n";
  // The first section answers the question of the page; contents and warnings come after it.
  for (const DocumentSection& one : document.sections) {
    text += section(one);
    if (&one == &document.sections.front()) text += contents(document) + document.before;
  }
  return text + fmt::format(
                    "</main>\n<footer><p>Made by gradsync-report, revision {}, from {}.</p>"
                    "</footer>\n<script>\n{}</script>\n</body>\n</html>\n",
                    html_text(revision()), html_text(document.made_from), page_script());
}

}  // namespace gradsync::report
