#include "analysis/formats/formats.h"

namespace gradsync {

namespace {

/// `text` with what Markdown or a renderer of it would take as markup made harmless.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (std::string("|\\`*_<>[]").find(c) != std::string::npos) result += '\\';
    result += c == '\n' || c == '\r' ? ' ' : c;
  }
  return result;
}

std::string line(const std::vector<std::string>& cells) {
  std::string text = "|";
  for (const std::string& cell : cells)
    text += " " + cell + " |";
  return text + "\n";
}

}  // namespace

std::string render_markdown(const Table& table) {
  std::vector<std::string> heads, rules;
  for (const Column& column : table.columns) {
    heads.push_back(escaped(column.head));
    rules.emplace_back(column.left ? ":--" : "--:");
  }
  std::string text = "### " + escaped(table.title) + "\n\n" + line(heads) + line(rules);
  for (const auto& row : table.rows) {
    std::vector<std::string> cells;
    for (const Cell& cell : row)
      cells.push_back(escaped(cell.shown()));
    text += line(cells);
  }
  if (!table.notes.empty()) text += "\n";
  for (const std::string& note : table.notes)
    text += "- " + escaped(note) + "\n";
  return text;
}

}  // namespace gradsync
