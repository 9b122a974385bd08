// SPDX-License-Identifier: BSD-3-Clause
#include "base/table.h"

#include <algorithm>
#include <ostream>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/parse.h"
#include "base/ranges.h"

namespace gradsync {

Cell::Cell(std::string_view value) : text(printable(value)) {}

Cell Cell::of(double value, int decimals_shown) {
  Cell cell;
  cell.number = value;
  cell.decimals = decimals_shown;
  return cell;
}

std::string Cell::shown() const {
  if (!is_number()) return text;
  if (std::isnan(number)) return "n/a";
  const std::string digits = fmt::format("{:.{}f}", number, decimals);
  const bool rounded_to_zero =
      digits.front() == '-' && digits.find_first_of("123456789i") == std::string::npos;
  return rounded_to_zero ? digits.substr(1) : digits;
}

void keep(std::vector<Column>& columns, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    const auto column = std::ranges::find(columns, name, &Column::name);
    if (column == columns.end())
      throw Error(ExitCode::kInternal, fmt::format("no column is named {}", name));
    column->detail = 0;
  }
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
  std::ranges::replace_if(
      name,
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

bool has_interval(const Table& table, std::size_t column) {
  return column + 2 < table.columns.size() && table.columns[column + 1].head == "low" &&
         table.columns[column + 2].head == "high";
}

std::size_t display_width(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t width, bool left) {
  const std::size_t have = display_width(text);
  const std::string fill(width > have ? width - have : 0, ' ');
  return left ? text + fill : fill + text;
}

namespace {

std::string trimmed_right(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::size_t width_of(const Table& table, const ShownColumn& shown) {
  std::size_t most = display_width(table.columns[shown.column].head);
  for (const auto& row : table.rows)
    most = std::max(most, display_width(shown.cell(row)));
  return most;
}

/// A column of a text in which two characters stand between columns.
struct Measured {
  ShownColumn shown;
  std::size_t width;
  int detail;
  bool constant;
  bool fits = true;
};

/// Whether all rows say the same, which a note can say as well.
bool is_constant(const Table& table, const ShownColumn& shown) {
  if (table.rows.size() < 2) return false;
  const std::string first = shown.cell(table.rows.front());
  return std::ranges::all_of(table.rows, [&](const auto& row) { return shown.cell(row) == first; });
}

Measured measured(const Table& table, const ShownColumn& shown) {
  constexpr int kConstant = 100;
  const bool constant = is_constant(table, shown);
  // The first column names the rows.
  const int detail = shown.column == 0 ? 0 : table.columns[shown.column].detail;
  return {shown, width_of(table, shown), detail > 0 && constant ? kConstant + detail : detail,
          constant};
}

std::string name_left_out(const Table& table, const Measured& column) {
  const std::string& head = table.columns[column.shown.column].head;
  const std::string value = column.constant ? column.shown.cell(table.rows.front()) : "";
  return value.empty() ? head : fmt::format("{} = {}", head, value);
}

/// Number of rows that differ in the labels that fit.
std::size_t rows_told_apart(const Table& table, const std::vector<Measured>& columns) {
  std::set<std::vector<std::string>> labels;
  for (const auto& row : table.rows) {
    std::vector<std::string> label;
    for (const Measured& column : columns)
      if (column.fits && table.columns[column.shown.column].label)
        label.push_back(column.shown.cell(row));
    labels.insert(std::move(label));
  }
  return labels.size();
}

void leave_out(const Table& table, std::vector<Measured>& columns, std::size_t width) {
  std::size_t total = 0;
  for (const Measured& column : columns)
    total += column.width + 2;
  const std::size_t apart = rows_told_apart(table, columns);
  while (total > width + 2) {
    const auto worst = std::max_element(
        columns.rbegin(), columns.rend(),
        [](const Measured& a, const Measured& b) { return a.fits * a.detail < b.fits * b.detail; });
    if (worst == columns.rend() || worst->fits * worst->detail == 0) break;
    worst->fits = false;
    if (table.columns[worst->shown.column].label && rows_told_apart(table, columns) < apart) {
      worst->fits = true;
      worst->detail = 0;
      continue;
    }
    total -= worst->width + 2;
  }
}

void print_columns(std::ostream& out, const Table& table, const std::vector<ShownColumn>& columns) {
  const auto widths = each(columns, [&](const auto& shown) { return width_of(table, shown); });
  const auto line = [&](auto&& text_of) {
    std::string joined;
    for (std::size_t i = 0; i < columns.size(); ++i)
      joined += (joined.empty() ? "" : "  ") +
                padded(text_of(i), widths[i], table.columns[columns[i].column].left);
    out << trimmed_right(joined) << '\n';
  };
  line([&](std::size_t i) { return table.columns[columns[i].column].head; });
  line([&](std::size_t i) { return std::string(widths[i], '-'); });
  for (const auto& row : table.rows)
    line([&](std::size_t i) { return columns[i].cell(row); });
}

void print_wrapped(std::ostream& out, const std::string& text, std::size_t width) {
  for (const std::string& line : wrapped(text, width - 2))
    out << "  " << line << '\n';
}

}  // namespace

std::vector<std::string> wrapped(const std::string& text, std::size_t width) {
  std::vector<std::string> lines;
  for (const std::string& word : split_list(text, ' ')) {
    if (!lines.empty() && display_width(lines.back()) + 1 + display_width(word) <= width)
      lines.back() += ' ' + word;
    else if (!word.empty())
      lines.push_back(word);
  }
  return lines;
}

std::string ShownColumn::cell(const std::vector<Cell>& row) const {
  const Cell& value = row[column];
  if (!interval || std::isnan(row[column + 1].number) || std::isnan(row[column + 2].number))
    return value.shown();
  return fmt::format("{} [{}, {}]", value.shown(), row[column + 1].shown(),
                     row[column + 2].shown());
}

ShownColumns shown_columns(const Table& table, std::size_t width) {
  std::vector<Measured> columns;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    const ShownColumn shown{c, width > 0 && has_interval(table, c)};
    columns.push_back(measured(table, shown));
    if (shown.interval) c += 2;
  }
  if (width > 0) leave_out(table, columns, width);
  ShownColumns result;
  for (const Measured& column : columns)
    if (column.fits)
      result.columns.push_back(column.shown);
    else
      result.left_out.push_back(name_left_out(table, column));
  return result;
}

void print_text(std::ostream& out, const Table& table) {
  out << table.title << '\n';
  print_columns(out, table, shown_columns(table, 0).columns);
  for (const auto& note : table.notes)
    out << "  " << note << '\n';
}

void print_narrow_text(std::ostream& out, const Table& table, std::size_t width,
                       const std::string& all, std::size_t most_notes) {
  const auto [columns, left_out] = shown_columns(table, width);
  out << table.title << '\n';
  print_columns(out, table, columns);
  for (std::size_t i = 0; i < std::min(most_notes, table.notes.size()); ++i)
    print_wrapped(out, table.notes[i], width);
  std::string more;
  if (!left_out.empty())
    more = fmt::format("{} not shown: {}", count_text(left_out.size(), "column"),
                       fmt::join(left_out, ", "));
  if (table.notes.size() > most_notes)
    more += (more.empty() ? "" : "; ") + count_text(table.notes.size() - most_notes, "more note");
  if (!more.empty()) print_wrapped(out, fmt::format("({}: {})", more, all), width);
}

}  // namespace gradsync
