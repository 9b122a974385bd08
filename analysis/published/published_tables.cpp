#include "analysis/published/published_tables.h"

namespace gradsync::report::published {

const std::vector<PublishedTableSpec>& published_tables() {
  static const std::vector<PublishedTableSpec> all = {
      {.name = "audit", .description = "a page: what was found, report by report", .make = nullptr},
#define GRADSYNC_PUBLISHED_TABLE(id, ...) {__VA_ARGS__, .make = make_published_##id##_table},
#include "analysis/published/published_tables.def"
#undef GRADSYNC_PUBLISHED_TABLE
  };
  return all;
}

}  // namespace gradsync::report::published
