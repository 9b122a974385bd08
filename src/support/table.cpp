#include "support/table.h"

#include <algorithm>
#include <ostream>

#include <fmt/format.h>

#include "support/error.h"

namespace gradsync {

Cell Cell::of(double value, int decimals_shown) {
  Cell cell;
  cell.number = value;
  cell.decimals = decimals_shown;
  return cell;
}

std::string Cell::shown() const {
  if (!is_number()) return text;
  if (std::isnan(number)) return "n/a";
  return fmt::format("{:.{}f}", number, decimals);
}

void Table::add(std::vector<Cell> row, std::string source) {
  if (row.size() != columns.size())
    throw Error(ExitCode::kInternal, fmt::format("table {}: a row of {} cells under {} columns",
                                                 name, row.size(), columns.size()));
  rows.push_back(std::move(row));
  sources.push_back(std::move(source));
}

namespace {

std::string id_text(std::string name) {
  std::replace_if(
      name.begin(), name.end(),
      [](char c) {
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                           (c >= '0' && c <= '9') || c == '-' || c == '_';
        return !plain;
      },
      '_');
  return name;
}

}  // namespace

bool has_claim(const Table& table, std::size_t row, std::size_t column) {
  return table.rows[row][column].is_number() && !table.columns[column].formula.empty();
}

std::string number_id(const Table& table, std::size_t row, std::size_t column) {
  return fmt::format("{}.{}.{}", id_text(table.name), row + 1, id_text(table.columns[column].name));
}

std::size_t display_width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string padded(const std::string& text, std::size_t width, bool left) {
  const std::size_t have = display_width(text);
  const std::string fill(width > have ? width - have : 0, ' ');
  return left ? text + fill : fill + text;
}

namespace {

std::vector<std::size_t> column_widths(const Table& table) {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    std::size_t width = display_width(table.columns[c].head);
    for (const auto& row : table.rows)
      width = std::max(width, display_width(row[c].shown()));
    widths.push_back(width);
  }
  return widths;
}

std::string trimmed_right(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

void print_text(std::ostream& out, const Table& table) {
  const auto widths = column_widths(table);
  const auto line = [&](auto&& text_of) {
    std::string joined;
    for (std::size_t c = 0; c < widths.size(); ++c)
      joined += (c ? "  " : "") + padded(text_of(c), widths[c], table.columns[c].left);
    out << trimmed_right(joined) << '\n';
  };
  out << table.title << '\n';
  line([&](std::size_t c) { return table.columns[c].head; });
  line([&](std::size_t c) { return std::string(widths[c], '-'); });
  for (const auto& row : table.rows)
    line([&](std::size_t c) { return row[c].shown(); });
  for (const auto& note : table.notes)
    out << "  " << note << '\n';
}

}  // namespace gradsync
