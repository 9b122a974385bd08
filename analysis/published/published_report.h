#pragma once

#include <filesystem>
#include <vector>

#include "analysis/output/claims.h"
#include "analysis/output/output.h"
#include "analysis/published/published_tables.h"
#include "analysis/published/search.h"

namespace gradsync::report::published {

/// The options of gradsync-audit.
struct PublishedOptions {
  std::filesystem::path file;         ///< stands behind the options on the command line
  std::int64_t batch_per_device = 0;  ///< 0: not said
  AuditOptions audit;
  std::vector<const PublishedTableSpec*> tables;
  bool list = false;  ///< the tables and formats there are, and nothing else
  OutputOptions output;
  std::filesystem::path html;  ///< empty: no page
  ClaimOptions claims;
};

OptionTable published_option_table();

/// All but `file`.
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

/// The audit's page, if it was asked for, and the tables. What the page says already is written
/// in the formats for machines alone.
void write_published(const PublishedReport& report, ReportOutput& output);

/// The tables of claims, made again.
std::vector<Table> tables_of_claims(const OptionValues& values,
                                    const std::vector<ClaimedFile>& files);

/// All of it as one HTML document.
std::string published_html(const PublishedReport& report);

}  // namespace gradsync::report::published
