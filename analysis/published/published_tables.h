#pragma once

#include <string>
#include <vector>

#include "analysis/published/audit.h"
#include "support/table.h"

/// Tables made from published numbers. A new one is a function below and one line in
/// published_tables.cpp.
namespace gradsync::report::published {

struct PublishedTableSpec {
  std::string name;  ///< for --table
  std::string description;
  Table (*make)(const Study& study, const Audit& audit);  ///< null: the audit's page
  bool on_page;                                           ///< the audit's page says it as well
};

const std::vector<PublishedTableSpec>& published_tables();

/// Each derived number, or of unknown kind or unit: printed, expected, verdict.
Table make_values_table(const Study& study, const Audit& audit);
/// Each derived column and the convention that gives it.
Table make_columns_table(const Study& study, const Audit& audit);
Table make_findings_table(const Study& study, const Audit& audit);

/// The tables of a study as made from run files, with the same column names where the same is
/// meant; what reports do not print is n/a.
Table make_batch_size_table(const Study& study, const Audit& audit);
Table make_speedup_table(const Study& study, const Audit& audit);
Table make_compute_comm_table(const Study& study, const Audit& audit);
Table make_bandwidth_table(const Study& study, const Audit& audit);
Table make_large_batch_table(const Study& study, const Audit& audit);

}  // namespace gradsync::report::published
