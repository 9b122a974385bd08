// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/tables/tables.h"

namespace gradsync::report {

namespace {

TableMaker maker(Table (*make)(const RunSet& set, const TableOptions& options)) {
  return [make](const RunStudy& runs, const TableOptions& options) {
    return make(runs.set(), options);
  };
}

TableMaker maker(Table (*make)(const RunStudy& runs, const TableOptions& options)) {
  return make;
}

}  // namespace

const std::vector<TableSpec>& tables() {
  static const std::vector<TableSpec> all = {
#define GRADSYNC_TABLE(id, input, ...) {__VA_ARGS__, .make = maker(make_##id##_table)},
#include "analysis/tables/tables.def"
#undef GRADSYNC_TABLE
  };
  return all;
}

}  // namespace gradsync::report
