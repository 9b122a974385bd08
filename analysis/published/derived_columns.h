#pragma once

#include <string>
#include <vector>

#include "analysis/published/study.h"

namespace gradsync::report::published {

/// Rows that were computed alike: one derived quantity of one model in one table of one report.
struct DerivedColumn {
  std::string report, table, quantity, unit, model;
  Kind kind = Kind::kUnknown;
  std::vector<const Row*> rows;
};

std::vector<DerivedColumn> derived_columns(const Study& study);

/// A row whose devices are those of the base: a speedup of 1 proves no convention.
bool is_base_row(const Study& study, const Row& row);

}  // namespace gradsync::report::published
