#include "support/table.h"

#include <algorithm>
#include <ostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "support/error.h"
#include "support/parse.h"

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

/// A column as it is printed.
struct TextColumn {
  std::string head;
  bool left = false;
  int detail = 1;
  std::vector<std::string> cells = {};
  bool fits = true;

  std::size_t width() const {
    std::size_t most = display_width(head);
    for (const std::string& cell : cells)
      most = std::max(most, display_width(cell));
    return most;
  }
};

bool has_interval(const Table& table, std::size_t column) {
  return column + 2 < table.columns.size() && table.columns[column + 1].head == "low" &&
         table.columns[column + 2].head == "high";
}

std::string with_interval(const std::vector<Cell>& row, std::size_t column) {
  const Cell &low = row[column + 1], &high = row[column + 2];
  if (std::isnan(low.number) || std::isnan(high.number)) return row[column].shown();
  return fmt::format("{} [{}, {}]", row[column].shown(), low.shown(), high.shown());
}

std::vector<TextColumn> text_columns(const Table& table) {
  std::vector<TextColumn> columns;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    const Column& from = table.columns[c];
    const bool interval = has_interval(table, c);
    TextColumn column{from.head, from.left, from.detail};
    for (const auto& row : table.rows)
      column.cells.push_back(interval ? with_interval(row, c) : row[c].shown());
    columns.push_back(std::move(column));
    if (interval) c += 2;
  }
  return columns;
}

/// Takes out what does not fit, the largest detail first and of the same the rightmost; returns the
/// heads of what was taken out.
std::vector<std::string> fit(std::vector<TextColumn>& columns, std::size_t width) {
  std::vector<std::string> left_out;
  const auto total = [&] {
    std::size_t sum = 0;
    for (const TextColumn& column : columns)
      sum += column.fits ? column.width() + 2 : 0;
    return sum;
  };
  while (total() > width + 2) {
    const auto worst = std::max_element(columns.rbegin(), columns.rend(),
                                        [](const TextColumn& a, const TextColumn& b) {
                                          return a.fits * a.detail < b.fits * b.detail;
                                        });
    if (worst == columns.rend() || worst->fits * worst->detail == 0) break;
    worst->fits = false;
  }
  for (const TextColumn& column : columns)
    if (!column.fits) left_out.push_back(column.head);
  std::erase_if(columns, [](const TextColumn& column) { return !column.fits; });
  return left_out;
}

void print_columns(std::ostream& out, const std::vector<TextColumn>& columns, std::size_t rows) {
  const auto line = [&](auto&& text_of) {
    std::string joined;
    for (const TextColumn& column : columns)
      joined += (joined.empty() ? "" : "  ") + padded(text_of(column), column.width(), column.left);
    out << trimmed_right(joined) << '\n';
  };
  line([](const TextColumn& column) { return column.head; });
  line([](const TextColumn& column) { return std::string(column.width(), '-'); });
  for (std::size_t row = 0; row < rows; ++row)
    line([&](const TextColumn& column) { return column.cells[row]; });
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

void print_narrow_text(std::ostream& out, const Table& table, std::size_t width,
                       const std::string& all) {
  constexpr std::size_t kMostNotes = 2;
  std::vector<TextColumn> columns = text_columns(table);
  const auto left_out = fit(columns, width);
  out << table.title << '\n';
  print_columns(out, columns, table.rows.size());
  for (std::size_t i = 0; i < std::min(kMostNotes, table.notes.size()); ++i)
    print_wrapped(out, table.notes[i], width);
  const auto counted = [](std::size_t number, const char* what) {
    return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
  };
  std::string more;
  if (!left_out.empty())
    more = fmt::format("{} not shown: {}", counted(left_out.size(), "column"),
                       fmt::join(left_out, ", "));
  if (table.notes.size() > kMostNotes)
    more += (more.empty() ? "" : "; ") + counted(table.notes.size() - kMostNotes, "more note");
  if (!more.empty()) print_wrapped(out, fmt::format("({}: {})", more, all), width);
}

}  // namespace gradsync
