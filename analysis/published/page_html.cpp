#include <fmt/format.h>

#include "analysis/output/page_parts.h"
#include "analysis/plots/html.h"
#include "analysis/published/page.h"

namespace gradsync::report::published {

namespace {

/// Items and their subitems as nested lists, whose last item stays open for what belongs to it.
class HtmlPage {
 public:
  void add(const Block& block) {
    switch (block.kind) {
      case Block::Kind::kItem:
        return item(1, "<strong>" + html_text(block.lead) + "</strong>: " + html_text(block.text));
      case Block::Kind::kSubitem:
        return item(2, html_text(block.text));
      default:
        close_lists(0);
        text_ += plain(block);
    }
  }

  std::string text() && {
    close_lists(0);
    return std::move(text_);
  }

 private:
  static std::string plain(const Block& block) {
    const std::string inside = html_text(block.text);
    switch (block.kind) {
      case Block::Kind::kHeading:
        return fmt::format("<h3 id=\"{}\">{}</h3>\n", report_anchor(block.text), inside);
      case Block::Kind::kSubheading:
        return "<h4>" + inside + "</h4>\n";
      case Block::Kind::kTable:
        return page_table(block.table, true);
      case Block::Kind::kTitle:
        return "";
      default:
        return "<p>" + inside + "</p>\n";
    }
  }

  void item(int depth, const std::string& inside) {
    close_lists(depth);
    if (depth_ == depth) text_ += "</li>\n";
    for (; depth_ < depth; ++depth_)
      text_ += depth_ + 1 < depth ? "<ul><li>" : "<ul>\n";
    text_ += "<li>" + inside;
  }

  void close_lists(int depth) {
    for (; depth_ > depth; --depth_)
      text_ += "</li>\n</ul>\n";
  }

  std::string text_;
  int depth_ = 0;  ///< of open lists
};

}  // namespace

std::string report_anchor(const std::string& heading) {
  return "report-" + id_text(heading);
}

std::string page_html(const Page& page) {
  HtmlPage html;
  for (const Block& block : page)
    html.add(block);
  return std::move(html).text();
}

}  // namespace gradsync::report::published
