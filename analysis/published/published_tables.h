#pragma once

#include <string>
#include <vector>

#include "analysis/published/audit.h"
#include "base/table.h"

/// Tables made from published numbers; published_tables.def lists them.
namespace gradsync::report::published {

struct PublishedTableSpec {
  std::string name;  ///< for --table
  std::string description;
  bool on_page = false;                                   ///< the audit's page says it as well
  Table (*make)(const Study& study, const Audit& audit);  ///< null: the audit's page
};

const std::vector<PublishedTableSpec>& published_tables();

/// `values`: each derived number, or of unknown kind or unit. The tables that are made from run
/// files as well have the same column names where the same is meant; what reports do not print is
/// n/a.
#define GRADSYNC_PUBLISHED_TABLE(id, ...) \
  Table make_published_##id##_table(const Study& study, const Audit& audit);
#include "analysis/published/published_tables.def"
#undef GRADSYNC_PUBLISHED_TABLE

}  // namespace gradsync::report::published
