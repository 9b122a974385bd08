#include "analysis/compare/command.h"

#include <algorithm>
#include <cmath>
#include <iostream>

#include <fmt/format.h>

#include "analysis/compare/comparison.h"
#include "analysis/metrics/fom.h"
#include "analysis/output/output.h"
#include "support/error.h"
#include "support/file.h"
#include "support/options.h"
#include "support/parse.h"
#include "support/program_output.h"
#include "support/version.h"

namespace gradsync::report {

namespace {

struct CompareOptions {
  double threshold = 0.05;  ///< how much slower a cell of B may be, a share
  std::uint64_t bootstrap_seed = 1;
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

ProgramOptions<CompareOptions> all_options() {
  using O = CompareOptions;
  using Value = BoundValue<O>;
  using Path = std::filesystem::path;
  return {"report",
          {{"What",
            {
                {"threshold", Value::parsed("SHARE", "5%", &O::threshold, parse_share),
                 "how much slower a cell of B may be, as 5% or 0.05"},
                {"bootstrap-seed", Value::integer<std::uint64_t>(&O::bootstrap_seed, 0, 1000000),
                 "of the intervals' resamples"},
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
  return {"gradsync-report compare", "gradsync-report compare [OPTION...] A B",
          "Compares the iteration times of two run files or folders, cell by cell.",
          "gradsync-report compare results/nccl-2.27 results/nccl-2.28\n"
          "gradsync-report compare old.h5 new.h5 --threshold 3% --junit compare.xml"};
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

int compare(const CompareOptions& options, ProgramOutput& program, const std::string& place_a,
            const std::string& place_b) {
  const RunSet a = loaded(place_a, options.force_merge), b = loaded(place_b, options.force_merge);
  const auto groups_a = group_runs(a), groups_b = group_runs(b);
  const auto cells = compare_groups(groups_a, groups_b, options.bootstrap_seed);
  require_common(cells);

  Table table = comparison_table(cells, options.threshold, options.bootstrap_seed);
  table.title += fmt::format(" (A: {}, B: {})", place_a, place_b);
  table.title += merged_title(a, "A") + merged_title(b, "B");
  for (const RunSet* set : {&a, &b})
    table.notes.insert(table.notes.end(), set->remarks.begin(), set->remarks.end());
  table = options.where.with_chosen_columns({table}).front();
  ReportOutput(options.where, std::cout, program.progress()).write(table);
  program.add(table);
  program.write_json();
  if (options.fom) print_foms(cells);
  if (!options.junit.empty())
    write_file_atomically(options.junit, junit_text(cells, options.threshold));
  const bool failed = std::any_of(cells.begin(), cells.end(), [&](const ComparedCell& cell) {
    return cell.fails(options.threshold);
  });
  return static_cast<int>(failed ? ExitCode::kCheckFailed : ExitCode::kOk);
}

}  // namespace

OptionTable compare_option_table() {
  return all_options().table();
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
  ProgramOutput program(given, "gradsync-report");
  return compare(all_options().read(given.values), program, given.positional[0],
                 given.positional[1]);
}

}  // namespace gradsync::report
