// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "analysis/output/claims.h"
#include "analysis/output/output.h"
#include "analysis/read/curve_file.h"
#include "analysis/tables/tables.h"
#include "base/cli/bound_option.h"
#include "base/cli/options.h"
#include "base/cli/program_help.h"

namespace gradsync::report {

struct ReportOptions {
  std::vector<const TableSpec*> tables;
  std::vector<const TableSpec*> page_tables;  ///< of --html
  bool tables_chosen = false;          ///< by name: all of them are printed; else the summary alone
  std::set<std::string> tables_asked;  ///< by an option that is about them: printed as well
  std::string as;                      ///< tables of this layout instead; empty: none
  OutputOptions output;
  bool plots = true;
  std::string verdict_wanted = "auto";  ///< auto | yes | brief | no
  bool verdict = true;                  ///< before the tables
  bool list = false;                    ///< what there is, and nothing else
  double peak_tflops = 0;               ///< for table.peak_flop_per_s; 0: not given
  double price_per_hour = 0;            ///< for table.price_per_hour; 0: not given
  std::filesystem::path sacct;          ///< for table.step_energies; empty: not given
  std::vector<CurveFile> calibration;   ///< files that runs are held against
  double link_gb_per_s = 0;             ///< for table.link_bytes_per_s; 0: not given
  bool force_merge = false;
  std::filesystem::path html;         ///< empty: no page
  std::string title;                  ///< of the page; empty: what the runs are
  bool places = false;                ///< host names and absolute paths on the page
  std::filesystem::path trace;        ///< empty: no trace
  std::string trace_iterations;       ///< as given
  bool fom = false;                   ///< figures of merit behind the tables
  std::vector<std::string> trace_in;  ///< traces of torch.profiler, or folders of them
  std::int64_t trace_batch = 0;       ///< samples per rank in them; 0: unknown
  std::string trace_model;            ///< name of their network; empty: that of their folder
  std::filesystem::path save;         ///< run file of these traces; empty: none
  TableOptions table;
  ClaimOptions claims;
};

OptionTable report_option_table();

ProgramHelp report_help();

/// Throws Error kUsage naming the option and what would be right.
ReportOptions report_options(const OptionValues& values);
/// Reads what options of tables name; what the files do not hold as they should. Throws Error of
/// the file.
std::vector<std::string> read_option_files(ReportOptions& options);

/// The files that options name, and tables are made from.
std::set<std::filesystem::path> option_files(const ReportOptions& options);

/// The tables of claims, made again.
std::vector<Table> tables_of_claims(const OptionValues& values,
                                    const std::vector<ClaimedFile>& files);

/// The text of --list.
std::string report_list();

OptionTable compare_option_table();

/// `gradsync-report compare A B`: argv[0] is "compare". Returns 1 if a cell of B is slower than
/// that of A beyond the threshold. Throws Error kUsage, and kBadData if A and B share no cell.
int compare_command(int argc, const char* const* argv);

}  // namespace gradsync::report
