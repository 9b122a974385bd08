#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/run_set.h"
#include "support/table.h"

namespace gradsync {

/// What a user can ask of tables.
struct TableOptions {
  std::int64_t log_every = 20;
};

/// A table of the report. A new one is a file with a `make` function and a line in registry.cpp.
struct TableSpec {
  std::string name;
  std::string description;
  Table (*make)(const RunSet& set, const TableOptions& options);
  bool merges = true;  ///< puts the repeats of a cell together: they must be mergeable
};

/// In the order in which they are printed.
const std::vector<TableSpec>& tables();

}  // namespace gradsync
