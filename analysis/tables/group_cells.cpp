#include "analysis/tables/group_cells.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "analysis/tables/run_cells.h"

namespace gradsync::report {

GroupLabels::GroupLabels(const std::vector<RunGroup>& groups)
    : varying_(differing_options(pointers_to(groups))) {}

std::vector<Column> GroupLabels::columns() const {
  std::vector<Column> result = cell_columns();
  if (!varying_.empty()) result.push_back({"settings", "settings", true});
  return result;
}

std::vector<Cell> GroupLabels::cells(const RunGroup& group) const {
  const Run& run = group.first();
  std::vector<Cell> result = {run.mode, run.model, known_count(run.ranks),
                              known_count(run.batch_per_rank), known_count(run.batch_global)};
  if (!varying_.empty()) result.emplace_back(settings(group));
  return result;
}

std::vector<Cell> GroupLabels::cells(const FailedCell& failed) const {
  std::vector<Cell> result = {failed.mode, failed.model, known_count(failed.ranks),
                              known_count(failed.batch_per_rank), known_count(failed.batch_global)};
  if (!varying_.empty()) result.emplace_back("");
  return result;
}

std::string GroupLabels::settings(const RunGroup& group) const {
  return settings_text(group.first(), varying_);
}

Column repeats_column() {
  return {"runs", "runs", false, "repeats of the cell", "/config"};
}

Cell repeats_cell(const RunGroup& group) {
  return Cell::count(static_cast<double>(group.repeats.size()));
}

Column group_name_column() {
  return {"run", "run", true, "", "", 3};
}

Cell group_name_cell(const RunGroup& group) {
  if (group.repeats.size() == 1) return group.first().name;
  return fmt::format("{} (+{})", group.first().name, group.repeats.size() - 1);
}

Cell known_count(std::int64_t number) {
  return Cell::count(number > 0 ? static_cast<double>(number)
                                : std::numeric_limits<double>::quiet_NaN());
}

Cell significant_cell(double value) {
  if (value == 0) return Cell::count(0);
  int decimals = 3;
  for (double limit = 1; decimals < 9 && std::abs(value) < limit; limit /= 10)
    ++decimals;
  if (std::abs(value) >= 10) decimals = 2;
  return Cell::of(value, decimals);
}

}  // namespace gradsync::report
