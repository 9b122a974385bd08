#include "analysis/tables/registry.h"

#include "analysis/tables/tables.h"

namespace gradsync {

const std::vector<TableSpec>& tables() {
  static const std::vector<TableSpec> all = {
      {"modes", "loss, accuracy and iteration time, one row per run and rank", make_modes_table,
       false},
      {"split", "compute, hidden and exposed communication, other; per rank and mean over ranks",
       make_split_table, false},
      {"batch-size", "epoch times, loss, accuracy and memory for each batch size; out of memory",
       make_batch_size_table},
      {"speedup", "speedup and efficiency, strong and weak, against two bases", make_speedup_table},
  };
  return all;
}

}  // namespace gradsync
