#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "analysis/published/expectation.h"
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

/// The convention that explains a column best.
struct Fit {
  const Convention* convention = nullptr;  ///< null: the kind has none
  Choice choice;
  std::size_t tried = 0;       ///< combinations of convention, constants and sources
  std::size_t agree = 0;       ///< of `evidence`
  std::size_t recomputed = 0;  ///< rows of `evidence` it gives a number for
  std::size_t evidence = 0;    ///< rows that some convention gives a number for, base rows apart
  bool reproduces = false;     ///< enough of them agree, the more the odder the convention
  double lowest = 0, highest = 0;  ///< printed / expected over the rows it gives a number for
  double median_distance = 0;      ///< of |ln(printed / expected)|
};

constexpr double kNear = 2;  ///< a nearest convention further off than this factor is none

/// Searches every convention of the column's kind with every constant, source and slip.
/// A fit must explain half of the rows, a tenth more for each step of cost, and three rows at least
/// from cost 2 on; the one that explains most counts, half a row off for each step of cost.
Fit search(const Study& study, const DerivedColumn& column, const AuditOptions& options);

/// The interval of message sizes with which `convention` gives every row of a bandwidth column;
/// unknown where there is none or fewer than three rows can be used.
Range implied_message(const Study& study, const DerivedColumn& column, const Convention& convention,
                      const AuditOptions& options);

}  // namespace gradsync::report::published
