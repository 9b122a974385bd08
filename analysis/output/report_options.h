#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "analysis/formats/registry.h"
#include "analysis/published/published_report.h"
#include "analysis/tables/registry.h"
#include "support/bound_option.h"

namespace gradsync::report {

struct ReportOptions {
  std::vector<const TableSpec*> tables;
  std::vector<const FormatSpec*> formats;
  std::filesystem::path output;  ///< a folder; empty: to stdout
  bool plots = true;
  std::string verdict_wanted = "auto";  ///< auto | yes | no
  bool verdict = true;                  ///< after the tables
  bool list = false;                    ///< what there is, and nothing else
  double link_gb_per_s = 0;             ///< for table.link_bytes_per_s; 0: not given
  bool force_merge = false;
  std::filesystem::path html;    ///< empty: no page
  std::filesystem::path trace;   ///< empty: no trace
  std::string trace_iterations;  ///< as given
  bool fom = false;              ///< figures of merit behind the tables
  TableOptions table;
  published::PublishedOptions published;
  std::filesystem::path claims;         ///< a file to write; empty: none
  std::filesystem::path verify_claims;  ///< a file to verify instead of a report; empty: none
};

/// Of ReportOptions::formats.
BoundOption<ReportOptions> format_option();

OptionTable report_option_table();

std::string report_help();

/// Throws Error kUsage naming the option and what would be right.
ReportOptions report_options(const OptionValues& values);

/// The text of --list.
std::string report_list();

}  // namespace gradsync::report
