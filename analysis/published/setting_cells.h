#pragma once

#include <string>
#include <vector>

#include "analysis/published/audit.h"
#include "base/table.h"

/// What the tables made from published numbers have in common. Their columns have the names of the
/// tables made from run files; what a report does not print is n/a.
namespace gradsync::report::published {

/// report, mode, model, ranks, batch per rank, global batch.
std::vector<Column> setting_columns();
std::vector<Cell> setting_cells(const Row& row);

/// One row for each setting (report, model, mode, devices, batch) of the file, in its order.
std::vector<const Row*> settings_of(const Study& study);

/// "reports.csv, lines 3, 7-9", for the claims of a row.
std::string source_text(const Study& study, const std::vector<std::size_t>& lines);

/// Iterations of an epoch of the row's setting, the last batch counted; NaN where unknown.
double iterations_of(const Row& row, const AuditOptions& options);

/// T(n) and T(1) of a setting from one and the same quantity of one table.
struct EpochTimes {
  Found time, base;
  TimeSource source;
};
EpochTimes epoch_times(const Study& study, const Row& row);

}  // namespace gradsync::report::published
