#include "analysis/published/published_tables.h"

namespace gradsync::report::published {

const std::vector<PublishedTableSpec>& published_tables() {
  static const std::vector<PublishedTableSpec> all = {
      {"audit", "the page that says report by report what was found", nullptr, false},
      {"values", "each derived number: printed, expected, verdict", make_values_table, false},
      {"columns", "each derived column and the convention that gives it", make_columns_table, true},
      {"findings", "what cannot be, is contradicted or misleads", make_findings_table, true},
      {"batch-size", "batch size against time, loss and accuracy", make_batch_size_table, false},
      {"speedup", "each published time against its base, strong and weak", make_speedup_table,
       false},
      {"compute-comm", "compute and communication of an iteration, published and derived",
       make_compute_comm_table, false},
      {"bandwidth", "each convention, with published and derived communication time",
       make_bandwidth_table, false},
      {"large-batch", "loss and accuracy against batch size at the last epoch of each table",
       make_large_batch_table, false},
  };
  return all;
}

}  // namespace gradsync::report::published
