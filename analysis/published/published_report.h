#pragma once

#include <filesystem>
#include <vector>

#include "analysis/published/published_tables.h"
#include "analysis/published/search.h"
#include "support/options.h"

namespace gradsync {

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

/// Reads, audits and writes page and tables. Throws Error kNoInput, kBadData with file and line.
void report_published(const PublishedOptions& options, ReportOutput& output);

}  // namespace published

}  // namespace gradsync
