// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/tables/tables.h"

namespace gradsync::report {

const std::vector<TableSpec>& tables() {
  static const std::vector<TableSpec> all = {
#define GRADSYNC_TABLE(id, input, ...) {__VA_ARGS__, .make = make_##id##_table},
#include "analysis/tables/tables.def"
#undef GRADSYNC_TABLE
  };
  return all;
}

}  // namespace gradsync::report
