#include <fmt/format.h>

#include "base/table_formats.h"

namespace gradsync {

namespace {

/// `text` with what Markdown or a renderer of it would take as markup made harmless.
std::string markdown_escaped(const std::string& text) {
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

std::string cell_text(const Table& table, std::size_t row, std::size_t column) {
  const Cell& cell = table.rows[row][column];
  if (!has_claim(table, row, column)) return markdown_escaped(cell.shown());
  return fmt::format("<span id=\"{}\">{}</span>", number_id(table, row, column), cell.shown());
}

}  // namespace

std::string render_markdown(const Table& table) {
  std::vector<std::string> heads, rules;
  for (const Column& column : table.columns) {
    heads.push_back(markdown_escaped(column.head));
    rules.emplace_back(column.left ? ":--" : "--:");
  }
  std::string text = "### " + markdown_escaped(table.title) + "\n\n" + line(heads) + line(rules);
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    std::vector<std::string> cells;
    for (std::size_t c = 0; c < table.columns.size(); ++c)
      cells.push_back(cell_text(table, row, c));
    text += line(cells);
  }
  if (!table.notes.empty()) text += "\n";
  for (const std::string& note : table.notes)
    text += "- " + markdown_escaped(note) + "\n";
  return text;
}

}  // namespace gradsync
