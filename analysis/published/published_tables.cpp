#include "analysis/published/published_tables.h"

namespace gradsync::published {

const std::vector<PublishedTableSpec>& published_tables() {
  static const std::vector<PublishedTableSpec> all = {
      {"audit", "the page that says report by report what was found", nullptr, false},
      {"values", "each derived number: printed, expected, verdict", make_values_table, false},
      {"columns", "each derived column and the convention that gives it", make_columns_table, true},
      {"findings", "what cannot be, is contradicted or misleads", make_findings_table, true},
  };
  return all;
}

}  // namespace gradsync::published
