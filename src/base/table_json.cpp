#include <cmath>

#include <nlohmann/json.hpp>

#include "base/table.h"

namespace gradsync {

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

}  // namespace gradsync
