#include "analysis/tables/registry.h"

#include "analysis/tables/tables.h"

namespace gradsync {

const std::vector<TableSpec>& tables() {
  static const std::vector<TableSpec> all = {
      {"modes", "loss, accuracy and iteration time, one row per run and rank", make_modes_table,
       false},
      {"split", "compute, hidden and exposed communication, other; per rank and mean over ranks",
       make_split_table, false},
  };
  return all;
}

}  // namespace gradsync
