#include "analysis/published/derived_columns.h"

#include <map>
#include <tuple>

namespace gradsync::report::published {

std::vector<DerivedColumn> derived_columns(const Study& study) {
  std::vector<DerivedColumn> columns;
  std::map<std::tuple<std::string, std::string, std::string, std::string, std::string>, std::size_t>
      known;
  for (const Row& row : study.rows()) {
    if (!row.what.derived) continue;
    const auto [place, added] = known.emplace(
        std::tuple(row.report, row.table, row.quantity, row.unit_text, row.model), columns.size());
    if (added)
      columns.push_back(
          {row.report, row.table, row.quantity, row.unit_text, row.model, row.what.kind, {}});
    columns[place->second].rows.push_back(&row);
  }
  return columns;
}

bool is_base_row(const Study& study, const Row& row) {
  return row.devices == study.base_devices(row);
}

}  // namespace gradsync::report::published
