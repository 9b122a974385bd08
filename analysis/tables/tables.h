#pragma once

#include "analysis/tables/registry.h"

/// One function a table, each in the file of its name; tables.def lists them. Those of the
/// scaling model take what it knows of the runs, the others the runs themselves.
namespace gradsync::report {

#define GRADSYNC_TABLE(id, input, ...) \
  Table make_##id##_table(const input& runs, const TableOptions& options);
#include "analysis/tables/tables.def"
#undef GRADSYNC_TABLE

}  // namespace gradsync::report
