#include <cmath>

#include <fmt/format.h>

#include "base/table_formats.h"

namespace gradsync {

namespace {

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string result = "\"";
  for (const char c : text)
    result += c == '"' ? "\"\"" : std::string(1, c);
  return result + "\"";
}

std::string field(const Cell& cell) {
  if (!cell.is_number()) return quoted(cell.text);
  return std::isnan(cell.number) ? "" : machine_number(cell.number);
}

}  // namespace

std::string machine_number(double value) {
  constexpr double kLargestWhole = 1e15;
  if (value == std::floor(value) && std::abs(value) < kLargestWhole)
    return fmt::format("{:.0f}", value);
  return fmt::format("{}", value);
}

std::string render_csv(const Table& table) {
  std::string text;
  for (std::size_t c = 0; c < table.columns.size(); ++c)
    text += (c ? "," : "") + quoted(table.columns[c].name);
  text += "\n";
  for (const auto& row : table.rows) {
    for (std::size_t c = 0; c < row.size(); ++c)
      text += (c ? "," : "") + field(row[c]);
    text += "\n";
  }
  return text;
}

}  // namespace gradsync
