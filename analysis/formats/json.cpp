#include <cmath>

#include <nlohmann/json.hpp>

#include "analysis/formats/formats.h"

namespace gradsync::report {

namespace {

using nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;
constexpr double kLargestWhole = 1e15;

ordered_json value(const Cell& cell) {
  if (!cell.is_number()) return cell.text;
  if (!std::isfinite(cell.number)) return nullptr;
  if (cell.number == std::floor(cell.number) && std::abs(cell.number) < kLargestWhole)
    return static_cast<std::int64_t>(cell.number);
  return cell.number;
}

}  // namespace

std::string render_json(const Table& table) {
  ordered_json columns = ordered_json::array();
  for (const Column& column : table.columns)
    columns.push_back({{"name", column.name}, {"head", column.head}});
  ordered_json rows = ordered_json::array();
  for (const auto& cells : table.rows) {
    ordered_json row = ordered_json::object();
    for (std::size_t c = 0; c < cells.size(); ++c)
      row[table.columns[c].name] = value(cells[c]);
    rows.push_back(std::move(row));
  }
  ordered_json document = {{"schema_version", kSchemaVersion},
                           {"name", table.name},
                           {"title", table.title},
                           {"notes", table.notes},
                           {"columns", std::move(columns)},
                           {"rows", std::move(rows)}};
  return document.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace gradsync::report
