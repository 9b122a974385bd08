// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/table.h"

namespace gradsync {

std::string render_text(const Table& table) {
  std::ostringstream out;
  print_text(out, table);
  return out.str();
}

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

namespace {

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string result = "\"";
  for (const char c : text)
    result += c == '"' ? "\"\"" : std::string(1, c);
  return result + "\"";
}

/// A text that a spreadsheet would compute gets the apostrophe that makes it a text there.
std::string field(const Cell& cell) {
  const bool formula =
      cell.text.size() > 1 && std::string("=+-@\t\r").find(cell.text.front()) != std::string::npos;
  if (!cell.is_number()) return quoted(formula ? "'" + cell.text : cell.text);
  return std::isnan(cell.number) ? "" : machine_number(cell.number);
}

}  // namespace

std::string machine_number(double value) {
  constexpr double kLargestWhole = 1e15;
  if (value == std::floor(value) && std::abs(value) < kLargestWhole)
    return fmt::format("{:.0f}", value + 0.0);  // -0 is 0
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

namespace {

using nlohmann::ordered_json;

constexpr int kTableSchema = 1;
constexpr double kLargestWhole = 1e15;

ordered_json json_value(const Cell& cell) {
  if (!cell.is_number()) return cell.text;
  if (!std::isfinite(cell.number)) return nullptr;
  if (cell.number == std::floor(cell.number) && std::abs(cell.number) < kLargestWhole)
    return static_cast<std::int64_t>(cell.number);
  return cell.number;
}

}  // namespace

std::string table_json(const Table& table) {
  ordered_json columns = ordered_json::array();
  for (const Column& column : table.columns)
    columns.push_back({{"name", column.name}, {"head", column.head}});
  ordered_json rows = ordered_json::array();
  for (const auto& cells : table.rows) {
    ordered_json row = ordered_json::object();
    for (std::size_t c = 0; c < cells.size(); ++c)
      row[table.columns[c].name] = json_value(cells[c]);
    rows.push_back(std::move(row));
  }
  ordered_json document = {{"schema_version", kTableSchema}, {"name", table.name},
                           {"title", table.title},           {"notes", table.notes},
                           {"columns", std::move(columns)},  {"rows", std::move(rows)}};
  return document.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

namespace {

/// The renderer of a form that has all columns in any case.
template <auto kRender>
std::string whole(const Table& table, bool) {
  return kRender(table);
}

}  // namespace

const std::vector<FormatSpec>& formats() {
  static const std::vector<FormatSpec> all = {
      {"text", "txt", "aligned columns for a terminal", whole<render_text>},
      {"markdown", "md", "pipe tables with notes", whole<render_markdown>},
      {"latex", "tex", "booktabs floats with labels and notes, as wide as an A4 page",
       render_latex},
      {"csv", "csv", "one header row, full precision, no notes", whole<render_csv>},
      {"json", "json", "one object per table, full precision, null where not measured",
       whole<table_json>},
  };
  return all;
}

namespace {

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '"')
      result += "&quot;";
    else
      result += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  }
  return result;
}

std::string body(const JunitCase& one) {
  const std::string text = escaped(one.message);
  if (one.result == JunitCase::Result::kSkipped)
    return fmt::format("<skipped message=\"{}\"/>", text);
  if (one.result == JunitCase::Result::kFailed)
    return fmt::format("<failure message=\"{}\" type=\"{}\"/>", text, escaped(one.type));
  return fmt::format("<system-out>{}</system-out>", text);
}

}  // namespace

std::string junit_suite(const std::string& suite, const std::string& class_name,
                        const std::vector<JunitCase>& cases) {
  const auto count = [&](JunitCase::Result result) {
    return std::ranges::count_if(cases, [&](const JunitCase& one) { return one.result == result; });
  };
  std::string text = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\">\n",
      escaped(suite), cases.size(), count(JunitCase::Result::kFailed),
      count(JunitCase::Result::kSkipped));
  for (const JunitCase& one : cases)
    text += fmt::format("  <testcase classname=\"{}\" name=\"{}\">{}</testcase>\n",
                        escaped(class_name), escaped(one.name), body(one));
  return text + "</testsuite>\n";
}

}  // namespace gradsync
