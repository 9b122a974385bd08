#include "analysis/compare/command.h"

#include <algorithm>
#include <cmath>
#include <iostream>

#include <fmt/format.h>

#include "analysis/compare/comparison.h"
#include "analysis/metrics/fom.h"
#include "analysis/output/output.h"
#include "analysis/output/report_options.h"
#include "support/error.h"
#include "support/file.h"
#include "support/options.h"
#include "support/parse.h"
#include "support/version.h"

namespace gradsync::report {

namespace {

OptionTable compare_option_table() {
  const OptionTable table = {
      {"threshold", "SHARE", "5%", "how much slower a cell of B may be, as 5% or 0.05", "What"},
      {"bootstrap-seed", "N", "1", "of the intervals' resamples, 0 to 1000000", "What"},
      {"force-merge", "", "false",
       "put repeats together that differ in placement, device, versions, threads or length; the "
       "table says so",
       "What"},
      {"fom", "", "false", "a line `FOM name value unit` for each figure, behind the table",
       "Where to"},
      {"format", format_choices(), "text", "forms of the table; several as a list with commas",
       "Where to", true},
      {"output", "DIR", "", "folder for compare.<format>", "Where to"},
      {"junit", "FILE", "", "the verdicts as JUnit XML, a test a cell", "Where to"},
  };
  return scoped("report", table);
}

std::string compare_help() {
  return help_text("gradsync-report compare [options] A B",
                   "gradsync-report compare results/nccl-2.27 results/nccl-2.28\n"
                   "gradsync-report compare old.h5 new.h5 --threshold 3% --junit compare.xml",
                   compare_option_table());
}

double threshold_option(const OptionValues& values) {
  std::string text = text_option(values, "threshold");
  const bool percent = text.ends_with('%');
  if (percent) text.pop_back();
  try {
    const double share = parse_number(trimmed(text)) / (percent ? 100 : 1);
    if (share >= 0 && share <= 100) return share;
  } catch (const Error&) {
    // The same message for both.
  }
  throw option_error(values, "threshold", fmt::format("\"{}\" is no share", text),
                     "give a percentage of 0 or more, as 5%, or a share, as 0.05");
}

RunSet loaded(const std::string& place, bool force_merge) {
  RunSet set = load_places({place});
  for (const std::string& remark : set.remarks)
    print_warning("gradsync-report", remark);
  if (!force_merge) require_mergeable(set);
  return set;
}

void require_common(const std::vector<ComparedCell>& cells) {
  if (std::any_of(cells.begin(), cells.end(), [](const ComparedCell& cell) {
        return cell.both() && std::isfinite(cell.time.ratio.value);
      }))
    return;
  std::string names;
  for (const ComparedCell& cell : cells)
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", cell.name, cell.verdict());
  throw Error(ExitCode::kBadData, "A and B share no cell with iteration times: " + names,
              "compare runs of the same model, mode, ranks and batch");
}

void print_foms(const std::vector<ComparedCell>& cells) {
  for (const ComparedCell& cell : cells) {
    std::cout << fom_line({"iteration_median_a." + cell.name, 1e3 * cell.time_a.value, "ms"})
              << '\n'
              << fom_line({"iteration_median_b." + cell.name, 1e3 * cell.time_b.value, "ms"})
              << '\n'
              << fom_line({"ratio." + cell.name, cell.time.ratio.value, "B/A"}) << '\n';
  }
}

std::string merged_title(const RunSet& set, const char* name) {
  const std::string mark = merged_across(set);
  return mark.empty() ? "" : fmt::format(" - {} {}", name, mark);
}

int compare(const OptionValues& values, const std::string& place_a, const std::string& place_b) {
  const double threshold = threshold_option(values);
  const auto seed =
      static_cast<std::uint64_t>(integer_option(values, "bootstrap-seed", 0, 1000000));
  const bool force_merge = switch_option(values, "force-merge");
  ReportOptions where;
  where.formats = chosen_formats(values);
  where.output = text_option(values, "output");
  const RunSet a = loaded(place_a, force_merge), b = loaded(place_b, force_merge);
  const auto groups_a = group_runs(a), groups_b = group_runs(b);
  const auto cells = compare_groups(groups_a, groups_b, seed);
  require_common(cells);

  Table table = comparison_table(cells, threshold, seed);
  table.title += fmt::format(" (A: {}, B: {})", place_a, place_b);
  table.title += merged_title(a, "A") + merged_title(b, "B");
  for (const RunSet* set : {&a, &b})
    table.notes.insert(table.notes.end(), set->remarks.begin(), set->remarks.end());
  ReportOutput(where, std::cout, std::cerr).write(table);
  if (switch_option(values, "fom")) print_foms(cells);
  const std::string junit = text_option(values, "junit");
  if (!junit.empty()) write_file_atomically(junit, junit_text(cells, threshold));
  const bool failed = std::any_of(cells.begin(), cells.end(),
                                  [&](const ComparedCell& cell) { return cell.fails(threshold); });
  return static_cast<int>(failed ? ExitCode::kCheckFailed : ExitCode::kOk);
}

}  // namespace

int compare_command(int argc, const char* const* argv) {
  const OptionTable table = compare_option_table();
  const ParsedCommandLine given = resolve_options(table, argc, argv, "A B");
  if (given.help) std::cout << compare_help();
  if (given.version) std::cout << version_text("gradsync-report");
  if (given.print_config) std::cout << config_text(table, given.values);
  if (given.help || given.version || given.print_config) return 0;
  if (given.positional.size() != 2)
    throw Error(ExitCode::kUsage,
                fmt::format("compare needs two places, {} given", given.positional.size()),
                "gradsync-report compare A B, each a run file or a folder; see compare --help");
  return compare(given.values, given.positional[0], given.positional[1]);
}

}  // namespace gradsync::report
