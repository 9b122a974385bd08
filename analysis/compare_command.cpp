// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>

#include <fmt/format.h>

#include "analysis/figures/run_group.h"
#include "analysis/output/output.h"
#include "analysis/report_options.h"
#include "analysis/tables/comparison.h"
#include "base/cli/options.h"
#include "base/cli/program_output.h"
#include "base/error.h"
#include "base/file.h"
#include "base/parse.h"
#include "stats/bandwidth.h"

namespace gradsync::report {

namespace {

struct CompareOptions {
  double threshold = 0.05;  ///< how much slower a cell of B may be, a share
  bool force_merge = false, fom = false;
  OutputOptions where;
  std::filesystem::path junit;  ///< empty: none
};

double parse_share(const std::string& text) {
  const bool percent = text.ends_with('%');
  try {
    const std::string digits = text.substr(0, text.size() - (percent ? 1 : 0));
    const double share = parse_number(trimmed(digits)) / (percent ? 100 : 1);
    if (share >= 0 && share <= 100) return share;
  } catch (const Error&) {
    // The same message for both.
  }
  throw Error(ExitCode::kUsage, fmt::format("\"{}\" is no share", text),
              "give a percentage of 0 or more, as 5%, or a share, as 0.05");
}

ProgramOptions<CompareOptions> compare_table() {
  using O = CompareOptions;
  using Value = BoundValue<O>;
  using Path = std::filesystem::path;
  return {"report",
          {{"What",
            {
                {"threshold", Value::parsed("SHARE", "5%", &O::threshold, parse_share),
                 "how much slower a cell of B may be, as 5% or 0.05: beyond it a cell fails if the "
                 "interval of its ratio says slower, or if there is none (fewer than 3 starts a "
                 "side), unless runs of the same work differ as much"},
                {"force-merge", Value::on_off(&O::force_merge),
                 "merge repeats that differ in placement, device, versions, threads or length; the "
                 "title of the table names the difference"},
            }},
           of_part(&O::where, output_options("folder for compare.<format>")),
           {"Where to",
            {
                {"fom", Value::on_off(&O::fom),
                 "a line `FOM name value unit` for each figure, after the table"},
                {"junit", Value::text_value<Path>(&O::junit, "FILE"),
                 "the verdicts as JUnit XML, one test per cell"},
            }}}};
}

ProgramHelp compare_help() {
  return {"gradsync-report compare",
          "gradsync-report compare [OPTION...] A B",
          "Compares the iteration times of two run files or folders, cell by cell, and the "
          "bandwidth of two files of gradsync-calibrate, size by size. Folders with 3 or more "
          "starts of each cell give intervals; so do two contenders of one gradsync-train "
          "--compare.",
          "gradsync-report compare results/nccl-2.27 results/nccl-2.28\n"
          "gradsync-report compare old.h5 new.h5 --threshold 3% --junit compare.xml\n"
          "gradsync-report compare last-week today   # folders of gradsync-calibrate --output",
          {ExitCode::kCheckFailed}};
}

RunSet loaded(const std::string& place, bool force_merge) {
  RunSet set = load_places({place});
  for (const std::string& remark : set.remarks)
    print_warning("gradsync-report", remark);
  if (!force_merge) require_mergeable(set);
  return set;
}

/// Whether A and B both hold numbers of one.
bool share(const auto& compared) {
  return std::ranges::any_of(
      compared, [](const Compared& one) { return one.both() && std::isfinite(one.ratio.value); });
}

void require_common(const std::vector<ComparedCell>& cells, const std::vector<Compared>& links) {
  if (share(cells) || share(links)) return;
  std::string names;
  for (const ComparedCell& cell : cells)
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", cell.name, cell.verdict());
  throw Error(ExitCode::kBadData, "A and B share no cell with iteration times: " + names,
              "compare runs of the same model, mode, ranks and batch, or calibrations of the same "
              "collectives and sizes");
}

/// Both sides as `name`, times `factor` in `unit`, and their ratio.
void print_foms(const auto& compared, const std::string& name, const std::string& ratio,
                double factor, const char* unit) {
  for (const Compared& one : compared)
    std::cout << fom_line({fmt::format("{}_a.{}", name, one.name), factor * one.a, unit}) << '\n'
              << fom_line({fmt::format("{}_b.{}", name, one.name), factor * one.b, unit}) << '\n'
              << fom_line({fmt::format("{}.{}", ratio, one.name), one.ratio.value, "B/A"}) << '\n';
}

std::string merged_title(const RunSet& set, const char* name) {
  const std::string mark = merged_across(set);
  return mark.empty() ? "" : fmt::format(" - {} {}", name, mark);
}

/// Each with the names of A and B, the first with what was left out of them.
void write_tables(const CompareOptions& options, ProgramOutput& program, ReportOutput& output,
                  std::vector<Table> tables,
                  const std::array<std::pair<std::string, const RunSet*>, 2>& places) {
  for (const auto& [place, set] : places)
    tables.front().notes.insert(tables.front().notes.end(), set->remarks.begin(),
                                set->remarks.end());
  for (Table& table : tables)
    table.title +=
        fmt::format(" (A: {}, B: {}){}{}", places[0].first, places[1].first,
                    merged_title(*places[0].second, "A"), merged_title(*places[1].second, "B"));
  tables = options.where.with_chosen_columns(std::move(tables));
  output.write(tables);
  for (const Table& table : tables)
    program.add(table);
  program.write_json();
}

int compare(const CompareOptions& options, ProgramOutput& program, const std::string& place_a,
            const std::string& place_b) {
  require_writable(options.junit);
  ReportOutput output(options.where, std::cout, program.progress());
  const RunSet a = loaded(place_a, options.force_merge), b = loaded(place_b, options.force_merge);
  const auto groups_a = group_runs(a), groups_b = group_runs(b);
  auto cells = compare_groups(groups_a, groups_b);
  const auto links = compare_links(a, b);
  require_common(cells, links);
  if (!share(cells)) cells.clear();

  std::vector<Table> tables;
  if (!cells.empty()) tables.push_back(comparison_table(cells, options.threshold));
  if (share(links)) tables.push_back(link_comparison_table(links, options.threshold));
  write_tables(options, program, output, std::move(tables), {{{place_a, &a}, {place_b, &b}}});
  if (options.fom) {
    print_foms(cells, "iteration_median", "ratio", 1e3, "ms");
    print_foms(links, "busbw", "busbw_ratio", 1 / kGB, "GB/s");
  }
  if (!options.junit.empty())
    write_file_atomically(options.junit, junit_text(cells, links, options.threshold));
  const auto fails = [&](const auto& one) { return one.fails(options.threshold); };
  const bool failed = std::ranges::any_of(cells, fails) || std::ranges::any_of(links, fails);
  return static_cast<int>(failed ? ExitCode::kCheckFailed : ExitCode::kOk);
}

}  // namespace

OptionTable compare_option_table() {
  return compare_table().table();
}

int compare_command(int argc, const char* const* argv) {
  const OptionTable table = compare_option_table();
  const ParsedCommandLine given = resolve_options(table, argc, argv, "A B");
  if (const auto text = answer(compare_help(), table, given)) return std::cout << *text, 0;
  if (given.positional.size() != 2)
    throw Error(
        ExitCode::kUsage,
        fmt::format("compare needs two files or folders, {} given", given.positional.size()),
        "gradsync-report compare A B, each a run file or a folder; see compare --help");
  require_writable(given.json);
  ProgramOutput program(given, "gradsync-report");
  return compare(compare_table().read(given.values), program, given.positional[0],
                 given.positional[1]);
}

}  // namespace gradsync::report
