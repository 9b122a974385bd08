#pragma once

#include <filesystem>
#include <vector>

#include "analysis/published/published_tables.h"
#include "analysis/published/search.h"
#include "support/options.h"

namespace gradsync::report {

class ReportOutput;

namespace published {

/// What --published and its companions ask for.
struct PublishedOptions {
  std::filesystem::path file;  ///< empty: no published numbers
  std::int64_t batch_per_device = kNotSaid;
  AuditOptions audit;
  std::vector<const PublishedTableSpec*> tables;
};

/// The options of this part, for the report's table of options.
OptionTable published_option_table();

/// All but `tables`. Throws Error kUsage.
PublishedOptions published_options(const OptionValues& values);

/// Published numbers, audited, with the tables that were asked for.
struct PublishedReport {
  Study study;
  Audit audit;
  std::vector<Table> tables;  ///< of the options that make one, in their order
  bool page = false;          ///< the audit's page was asked for, too
};

/// Throws Error kNoInput, kBadData with file and line.
PublishedReport read_published(const PublishedOptions& options);

/// The page and the tables, as the options of the output want them.
void write_published(const PublishedReport& report, ReportOutput& output);

/// All of it as one HTML document.
std::string published_html(const PublishedReport& report);

}  // namespace published

}  // namespace gradsync::report
