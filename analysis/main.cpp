// SPDX-License-Identifier: BSD-3-Clause
// gradsync-report: run files in, tables and plots out. Needs no MPI, no GPU and no LibTorch.

#include <sys/resource.h>

#include <algorithm>
#include <iostream>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/figures/run_group.h"
#include "analysis/output/claims.h"
#include "analysis/output/output.h"
#include "analysis/output/page.h"
#include "analysis/output/trace.h"
#include "analysis/published/layout.h"
#include "analysis/read/run_set.h"
#include "analysis/read/trace_run.h"
#include "analysis/report_options.h"
#include "analysis/verdict/verdict.h"
#include "base/cli/program_output.h"
#include "base/error.h"
#include "base/file.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "record/recorder.h"

namespace {

using namespace gradsync;
using namespace gradsync::report;

constexpr const char* kProgram = "gradsync-report";

int show(const std::string& text) {
  std::cout << text << '\n';
  return 0;
}

void require_places(const ParsedCommandLine& given, const ReportOptions& options) {
  if (given.positional.empty() && options.trace_in.empty())
    throw Error(ExitCode::kUsage, "no run was named",
                "gradsync-report RUN..., with run files, journals or folders; see --help");
}

/// Whether plots go into the folder or onto the page.
bool draws(const ReportOptions& options) {
  return (options.plots && !options.output.output.empty()) || !options.html.empty();
}

int verify(const ParsedCommandLine& given, const ReportOptions& options) {
  if (!given.positional.empty())
    throw option_error(given.values, "verify-claims", "takes no run files: the claims name them",
                       "gradsync-report --verify-claims FILE");
  return show(verify_claims(options.claims.verify_claims, kProgram, report_option_table(),
                            tables_of_claims));
}

/// What every table says of repeats that --force-merge puts together; empty if they fit.
std::string merge_mark(const ReportOptions& options, const RunSet& set) {
  const bool merging = options.verdict || options.fom || draws(options) || !options.as.empty() ||
                       std::ranges::any_of(options.tables, &TableSpec::merges);
  if (!merging) return "";
  if (!options.force_merge) require_mergeable(set);
  return merged_across(set);
}

Table marked(Table table, const std::string& mark) {
  if (!mark.empty()) table.title += " - " + mark;
  return table;
}

std::vector<NamedChart> charts_for(const RunStudy& runs, const std::vector<Table>& made,
                                   const ReportOptions& options,
                                   const std::optional<published::Layout>& layout,
                                   const std::string& mark, bool say_missing) {
  std::vector<std::string> missing;
  auto charts = make_charts({runs, made, options.table}, missing);
  if (layout && layout->plots) {
    const auto& own = *layout->plots;
    const auto is_other = [&own](const std::string& name) { return !contains(own, name); };
    std::erase_if(charts, [&](const NamedChart& plot) { return is_other(plot.name); });
    std::erase_if(missing, is_other);
  }
  if (say_missing && !missing.empty())
    std::cerr << fmt::format("plots not drawn, without data in these runs: {}\n",
                             fmt::join(missing, ", "));
  if (!mark.empty())
    for (NamedChart& plot : charts)
      plot.chart.caption.push_back(mark + ".");
  return charts;
}

/// Throws Error kUsage where --trace shows no iterations of one run.
void require_trace(const RunSet& set, const ReportOptions& options) {
  if (options.trace.empty()) return;
  if (set.runs.size() == 1)
    trace_window(options.trace_iterations, set.runs.front());
  else
    throw Error(ExitCode::kUsage,
                fmt::format("--trace shows one run, and {} were named", set.runs.size()),
                "name one run file");
}

void write_trace_of(const RunSet& set, const ReportOptions& options) {
  const Run& run = set.runs.front();
  const TraceWindow window = trace_window(options.trace_iterations, run);
  write_trace(options.trace, trace_json(run, window));
  std::cerr << fmt::format("{}: iterations {} to {} of {}\n", options.trace.string(), window.first,
                           window.last, run.name);
}

/// Every run stays open while tables are made, and shells often allow 1,024 files only.
void allow_many_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

/// Layout that --as names. Throws Error kBadData where it names a plot that there is not.
std::optional<published::Layout> layout_of(const ReportOptions& options) {
  if (options.as.empty()) return {};
  published::Layout layout = published::read_layout(options.as);
  std::vector<std::string> known = each(plots(), &PlotSpec::name);
  for (const std::string& name : layout.plots.value_or(std::vector<std::string>{}))
    if (!contains(known, name))
      throw Error(ExitCode::kBadData,
                  fmt::format("layout {}: there is no plot {}{}", layout.name, excerpt(name),
                              did_you_mean(name, known)),
                  fmt::format("plots: {}", fmt::join(known, ", ")));
  return layout;
}

/// Moves the traces out of `places`; the run that they make, saved where that is asked for. Nothing
/// without --trace-in.
std::vector<FoundRun> traced_run(const ReportOptions& options, std::vector<std::string>& places) {
  if (options.trace_in.empty()) return {};
  const auto first = std::stable_partition(places.begin(), places.end(),
                                           [](const auto& place) { return !is_trace_name(place); });
  std::vector<std::string> named = options.trace_in;
  named.insert(named.end(), first, places.end());
  places.erase(first, places.end());
  const auto read = [traces = find_traces(named),
                     job = TracedJob{options.trace_batch, options.trace_model}] {
    ProgressLine progress;
    return run_of_traces(traces, job, [&](std::size_t done, std::size_t all) {
      progress.say(fmt::format("reading trace {} of {}", done + 1, all));
    });
  };
  if (options.save.empty()) return {{named.front(), true, read}};
  const auto run = read();
  publish_run(*run, options.save);
  for (const std::string& remark : run->remarks())
    print_warning(kProgram, fmt::format("{}: {}", options.save.string(), remark));
  return {{options.save, true}};
}

RunSet read_runs(const std::vector<std::string>& places, const std::vector<FoundRun>& traced,
                 const ReportOptions& options) {
  ProgressLine progress;
  return load_places(
      places,
      [&](std::size_t done, std::size_t all) {
        progress.say(fmt::format("reading run {} of {}", done + 1, all));
      },
      traced, options.calibration);
}

std::vector<Table> make_tables(const ReportOptions& options, const RunStudy& runs,
                               const std::optional<published::Layout>& layout,
                               const std::string& mark) {
  std::vector<Table> made;
  if (layout)
    for (Table& table : published::tables_as_published(*layout, runs.set()))
      made.push_back(marked(std::move(table), mark));
  ProgressLine progress;
  for (const TableSpec* spec : options.tables) {
    if (!spec->applies(runs.set(), options.table)) {
      if (options.tables_chosen && options.tables.size() < tables().size())
        std::cerr << fmt::format("table {}: there is no {} here\n", spec->name,
                                 spec->needed_text());
      continue;
    }
    progress.say("table " + spec->name);
    made.push_back(marked(spec->make(runs, options.table), mark));
    progress.clear();
  }
  return options.output.with_chosen_columns(std::move(made));
}

void print_foms(const RunSet& set) {
  for (const Fom& fom : figures_of_merit(group_runs(set)))
    std::cout << fom_line(fom) << '\n';
}

/// Tables, verdict and, where something is drawn, charts of the runs.
PageContent content_of(const RunStudy& runs, const ReportOptions& options,
                       const std::optional<published::Layout>& layout, bool drawn,
                       bool say_missing) {
  const std::string mark = merge_mark(options, runs.set());
  PageContent content;
  content.title = options.title;
  content.places = options.places;
  content.tables = make_tables(options, runs, layout, mark);
  if (options.verdict && !runs.set().runs.empty()) content.verdict = make_verdict(runs);
  if (options.verdict_wanted == "brief") content.verdict = main_clauses(content.verdict);
  if (drawn) content.charts = charts_for(runs, content.tables, options, layout, mark, say_missing);
  return content;
}

/// The page is made from runs whose hosts and paths have other names, since in a finished text a
/// host may have the name of a mode. `opened` loses its readers.
void write_page(const std::vector<std::string>& places, const std::vector<FoundRun>& traced,
                ReportOptions options, const std::optional<published::Layout>& layout,
                bool say_missing, RunSet& opened) {
  const RunSet set = load_places(places, {}, traced, options.calibration, !options.places, &opened);
  options.tables = options.page_tables;
  options.tables_chosen = false;  // which of them are missing was said
  if (auto& network = options.table.what_if.network; network && !options.places) {
    std::string& text = options.table.what_if.text;
    const std::string path = network->path.string();
    network->path = network->path.filename();
    if (const auto at = text.find(path); at != std::string::npos)
      text.replace(at, path.size(), network->path.string());
  }
  const RunStudy runs(set);
  write_file_atomically(options.html,
                        render_page(set, content_of(runs, options, layout, true, say_missing)));
}

int report_command(int argc, const char* const* argv) {
  const ParsedCommandLine given = resolve_options(report_option_table(), argc, argv, "RUN...");
  ProgramHelp help = report_help();
  help.commands = {{"compare", compare_option_table()}};
  if (const auto text = answer(help, report_option_table(), given)) return std::cout << *text, 0;
  ReportOptions options = report_options(given.values);
  require_writable(given.json);
  ProgramOutput program(given, kProgram);
  if (options.list) return show(report_list());
  for (const std::string& remark : read_option_files(options))
    print_warning(kProgram, remark);

  if (!options.claims.verify_claims.empty()) return verify(given, options);

  // 1. Read.
  require_places(given, options);
  for (const auto* file : {&options.html, &options.claims.claims, &options.trace, &options.save})
    require_writable(*file);
  require_free(options.save, "choose another --save; a run file is never overwritten");
  ReportOutput output(options.output, std::cout, program.progress());
  const std::optional<published::Layout> layout = layout_of(options);
  allow_many_files();
  std::vector<std::string> places = given.positional;
  const std::vector<FoundRun> traced = traced_run(options, places);
  RunSet set = read_runs(places, traced, options);
  for (const std::string& remark : set.remarks)
    print_warning(kProgram, remark);
  require_trace(set, options);

  // 2. Tables, verdict and plots.
  const RunStudy runs(set);
  const bool drawn = options.plots && !options.output.output.empty();
  const PageContent made = content_of(runs, options, layout, drawn, drawn);
  const bool verdict = options.verdict && !set.runs.empty();

  // 3. Text and files.
  if (verdict) output.write_verdict(made.verdict);
  output.write(made.tables, set.remarks, [&](const Table& table) {
    return options.tables_chosen || !options.as.empty() ||
           options.tables_asked.contains(table.name) ||
           std::ranges::any_of(options.tables, [&](const TableSpec* spec) {
             return spec->name == table.name && spec->printed_by_default();
           });
  });
  if (!options.claims.claims.empty())
    write_claims(options.claims.claims, report_option_table(), given.values,
                 claimed_files(set, option_files(options)), made.tables);
  if (options.fom) print_foms(set);

  // 4. Plots, trace, page.
  if (drawn) output.draw_plots(made.charts);
  if (!options.trace.empty()) write_trace_of(set, options);
  if (!options.html.empty()) write_page(places, traced, options, layout, !drawn, set);

  // 5. The same for programs.
  if (verdict) program.add(verdict_table(made.verdict));
  for (const Table& table : made.tables)
    program.add(with_remarks(table, set.remarks));
  program.write_json();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return gradsync::run_program(kProgram, [&] {
    const bool comparing = argc > 1 && std::string_view(argv[1]) == "compare";
    return comparing ? gradsync::report::compare_command(argc - 1, argv + 1)
                     : report_command(argc, argv);
  });
}
