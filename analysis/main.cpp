// gradsync-report: run files in, tables and plots out. Needs no MPI, no GPU and no LibTorch.

#include <algorithm>
#include <iostream>

#include <fmt/format.h>

#include "analysis/metrics/run_group.h"
#include "analysis/output.h"
#include "analysis/report_options.h"
#include "analysis/run_set.h"
#include "analysis/verdict/verdict.h"
#include "support/error.h"
#include "support/version.h"

namespace {

using namespace gradsync;

constexpr const char* kProgram = "gradsync-report";

int show(const std::string& text) {
  std::cout << text << '\n';
  return 0;
}

void require_places(const ParsedCommandLine& given) {
  if (given.positional.empty())
    throw Error(ExitCode::kUsage, "no run was named",
                "gradsync-report RUN..., with run files, journals or folders; see --help");
}

/// What every table says of repeats that --force-merge puts together; empty if they fit.
std::string merge_mark(const ReportOptions& options, const RunSet& set) {
  const bool merging =
      options.verdict || std::any_of(options.tables.begin(), options.tables.end(),
                                     [](const TableSpec* table) { return table->merges; });
  if (!merging) return "";
  if (!options.force_merge) require_mergeable(set);
  return merged_across(set);
}

Table marked(Table table, const std::string& mark) {
  if (!mark.empty()) table.title += " - " + mark;
  return table;
}

int audit(const ReportOptions& options, const ParsedCommandLine& given) {
  if (!given.positional.empty())
    throw Error(ExitCode::kUsage,
                fmt::format("--published takes no runs, and '{}' was named", given.positional[0]),
                "read runs and published numbers one after the other");
  ReportOutput output(options, std::cout, std::cerr);
  report_published(options.published, output);
  return 0;
}

int report(int argc, const char* const* argv) {
  const ParsedCommandLine given = resolve_options(report_option_table(), argc, argv, "RUN...");
  if (given.help) return show(report_help());
  if (given.version) return show(version_text(kProgram));
  if (given.print_config) return show(config_text(report_option_table(), given.values));
  const ReportOptions options = report_options(given.values);
  if (switch_option(given.values, "list")) return show(report_list());

  if (!options.published.file.empty()) return audit(options, given);

  // 1. Read.
  require_places(given);
  RunSet set = load_runs(find_runs(given.positional));
  set.failed = find_failed_cells(given.positional, set.remarks);
  for (const std::string& remark : set.remarks)
    std::cerr << kProgram << ": " << remark << '\n';

  const std::string mark = merge_mark(options, set);

  // 2. Tables.
  ReportOutput output(options, std::cout, std::cerr);
  for (const TableSpec* table : options.tables)
    output.write(marked(table->make(set, options.table), mark));

  // 3. Verdict.
  if (options.verdict) output.write_verdict(make_verdict(set));

  // 4. Plots.
  output.draw_plots(set);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return gradsync::run_program(kProgram, [&] { return report(argc, argv); });
}
