#include "analysis/tables/tables.h"

#include "analysis/tables/columns.h"

namespace gradsync::report {

namespace {

/// Adds what a reader of any table must know of its runs.
Table with_remarks(Table table, const RunSet& set) {
  const auto remarks = remark_notes(set);
  table.notes.insert(table.notes.end(), remarks.begin(), remarks.end());
  return table;
}

TableMaker maker(Table (*make)(const RunSet& set, const TableOptions& options)) {
  return [make](const RunStudy& runs, const TableOptions& options) {
    return with_remarks(make(runs.set(), options), runs.set());
  };
}

TableMaker maker(Table (*make)(const RunStudy& runs, const TableOptions& options)) {
  return [make](const RunStudy& runs, const TableOptions& options) {
    return with_remarks(make(runs, options), runs.set());
  };
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
