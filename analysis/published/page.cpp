#include "analysis/published/page.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/table.h"

namespace gradsync::report::published {

namespace {

constexpr std::size_t kWidth = 100;

// --- text ----------------------------------------------------------------------------------------

std::string wrapped(const std::string& text, const std::string& first, const std::string& next) {
  std::istringstream words(text);
  std::string result, line = first, word;
  bool empty = true;
  while (words >> word) {
    if (!empty && display_width(line) + 1 + display_width(word) > kWidth) {
      result += line + "\n";
      line = next;
      empty = true;
    }
    line += (empty ? "" : " ") + word;
    empty = false;
  }
  return result + line + "\n";
}

std::string underlined(const std::string& text, char with) {
  return text + "\n" + std::string(display_width(text), with) + "\n";
}

std::string block_text(const Block& block) {
  switch (block.kind) {
    case Block::Kind::kTitle:
    case Block::Kind::kHeading:
      return underlined(block.text, block.kind == Block::Kind::kTitle ? '=' : '-');
    case Block::Kind::kItem:
      return wrapped(block.lead + ": " + block.text, "  - ", "    ");
    case Block::Kind::kSubitem:
      return wrapped(block.text, "      * ", "        ");
    case Block::Kind::kTable:
      return render_text(block.table);
    case Block::Kind::kSubheading:
    case Block::Kind::kParagraph:
      break;
  }
  return wrapped(block.text, "", "");
}

// --- Markdown ------------------------------------------------------------------------------------

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (std::string("|\\`*_<>[]#").find(c) != std::string::npos) result += '\\';
    result += c == '\n' || c == '\r' ? ' ' : c;
  }
  return result;
}

std::string block_markdown(const Block& block) {
  switch (block.kind) {
    case Block::Kind::kTitle:
      return "# " + escaped(block.text) + "\n";
    case Block::Kind::kHeading:
      return "## " + escaped(block.text) + "\n";
    case Block::Kind::kSubheading:
      return "### " + escaped(block.text) + "\n";
    case Block::Kind::kItem:
      return fmt::format("- **{}**: {}\n", escaped(block.lead), escaped(block.text));
    case Block::Kind::kSubitem:
      return "  - " + escaped(block.text) + "\n";
    case Block::Kind::kTable:
      return render_markdown(block.table);
    case Block::Kind::kParagraph:
      break;
  }
  return escaped(block.text) + "\n";
}

bool is_item(const Block& block) {
  return block.kind == Block::Kind::kItem || block.kind == Block::Kind::kSubitem;
}

// Items of one list stand together, everything else apart.
template <typename Render>
std::string joined(const Page& page, Render&& render) {
  std::string text;
  for (std::size_t i = 0; i < page.size(); ++i) {
    const bool in_list = i > 0 && is_item(page[i]) && is_item(page[i - 1]);
    text += (i == 0 || in_list ? "" : "\n") + render(page[i]);
  }
  return text;
}

}  // namespace

std::string page_text(const Page& page) {
  return joined(page, block_text);
}

std::string page_markdown(const Page& page) {
  return joined(page, block_markdown);
}

std::string lines_text(std::vector<std::size_t> lines) {
  std::sort(lines.begin(), lines.end());
  lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < lines.size();) {
    std::size_t end = i + 1;
    while (end < lines.size() && lines[end] == lines[end - 1] + 1)
      ++end;
    parts.push_back(end - i < 2 ? fmt::format("{}", lines[i])
                                : fmt::format("{}-{}", lines[i], lines[end - 1]));
    i = end;
  }
  return fmt::format("{} {}", lines.size() == 1 ? "line" : "lines", fmt::join(parts, ", "));
}

}  // namespace gradsync::report::published
