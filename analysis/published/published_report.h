#pragma once

#include <filesystem>
#include <vector>

#include "analysis/published/published_tables.h"
#include "analysis/published/search.h"
#include "support/bound_option.h"

namespace gradsync::report::published {

/// What --published and its companions ask for.
struct PublishedOptions {
  std::filesystem::path file;         ///< empty: no published numbers
  std::int64_t batch_per_device = 0;  ///< 0: not said
  AuditOptions audit;
  std::vector<const PublishedTableSpec*> tables;
};

/// The options of this part, which set all but `tables`.
BoundGroup<PublishedOptions> published_options();

/// Published numbers, audited, with the tables that were asked for.
struct PublishedReport {
  Study study;
  Audit audit;
  std::vector<Table> tables;  ///< of the options that make one, in their order
  bool page = false;          ///< the audit's page was asked for, too
};

/// Throws Error kNoInput, kBadData with file and line.
PublishedReport read_published(const PublishedOptions& options);

/// Whether the audit's page says what the table says.
bool is_on_page(const Table& table);

/// All of it as one HTML document.
std::string published_html(const PublishedReport& report);

}  // namespace gradsync::report::published
