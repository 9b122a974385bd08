// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/report_options.h"

#include <fmt/format.h>

#include "analysis/plots/plots.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "stats/bandwidth.h"

namespace gradsync::report {

namespace {

using O = ReportOptions;
using Value = BoundValue<O>;

constexpr std::int64_t kMostCounted = 1000000;
constexpr const char* kAuto = "auto";

std::vector<std::int64_t> parse_counts(const std::string& text) {
  std::vector<std::int64_t> counts;
  if (text.empty()) return counts;
  for (const std::string& entry : split_list(text, ',')) {
    counts.push_back(parse_integer(entry));
    if (counts.back() < 1 || counts.back() > kMostCounted)
      throw Error(ExitCode::kUsage, fmt::format("{} is not from 1 to {}", entry, kMostCounted));
  }
  return counts;
}

std::vector<CurveFile> parse_curve_files(const std::string& text) {
  std::vector<CurveFile> files;
  if (!text.empty())
    for (const std::string& one : split_list(text, '\n'))
      files.push_back(parse_curve_file(one));
  return files;
}

// NOLINTNEXTLINE(readability-function-size): a list
BoundGroup<O> table_options() {
  using T = TableOptions;
  const auto table = [](auto member) { return part_of(&O::table, member); };
  return {
      "What",
      {
          names_option<O>(
              "table", names_of(tables()), kAuto,
              "tables to print; several as a list with commas. auto: the summary, those "
              "that another option is about, and all of them in --output, --html and "
              "--claims",
              [](const OptionValues& values, const std::string& name, O& options) {
                options.tables_chosen = values.at(name).value != kAuto;
                if (options.tables_chosen) options.tables = chosen(values, name, tables());
              }),
          {"log-every", Value::integer(table(&T::log_every), 0, kMostCounted, "none"),
           "table modes: loss at every Nth iteration"},
          {"predict-ranks", Value::parsed("LIST", "", table(&T::predict_ranks), parse_counts),
           "table prediction: numbers of ranks, e.g. 8,16,64, each 1 to 1000000; empty: 2, 4 and "
           "8 times the most ranks of the runs"},
          {"predict-batch", Value::parsed("LIST", "", table(&T::predict_batches), parse_counts),
           "table prediction: batches per rank, each 1 to 1000000, of which those within the range "
           "of the runs are predicted; empty: those of the runs"},
          {"what-if", Value::parsed("KEY=VALUE,...", "", table(&T::what_if), parse_what_if),
           "table what-if: replay the recorded buckets with bucket-cap=4MiB, first-bucket=1MiB, "
           "wire=bf16, bandwidth=10Gbit/s or 1.25GB/s (of a rank's link, each way), "
           "latency=20us, ranks=16, batch=64, or the curves of another network=FILE (as "
           "--calibration)"},
          {"verdict", Value::choice(&O::verdict_wanted, {"auto", "yes", "brief", "no"}),
           "a few sentences that say what the tables show, before them (--wide: with the data each "
           "rests on); brief: only the first eight; auto: unless "
           "tables are named, or with all"},
          {"force-merge", Value::on_off(&O::force_merge),
           "merge repeats that differ in placement, device, versions, threads or length; every "
           "table names the difference. Without it such runs end the report with exit code 65"},
          names_option<O>(
              "bandwidth-convention", {kConventionNames.begin(), kConventionNames.end()}, "busbw",
              "table bandwidth: how a time becomes a bandwidth; several as a list with commas",
              [](const OptionValues& values, const std::string& name, O& options) {
                options.table.conventions.clear();
                for (const std::string& one :
                     chosen_names(values, name, {kConventionNames.begin(), kConventionNames.end()}))
                  options.table.conventions.push_back(*parse_convention(one));
              }),
          {"link-bandwidth", Value::number(&O::link_gb_per_s, 0, 1e6),
           "table bandwidth: B of the predicted allreduce times, in GB/s (1e9 bytes); 0: the "
           "plateau of calibration"},
          {"peak-tflops", Value::number(&O::peak_tflops, 0, 1e6),
           "table utilization: peak of a rank in the run's precision, in TFLOP/s; 0: the data "
           "sheet's, of known GPUs"},
          {"price-per-hour", Value::number(&O::price_per_hour, 0, 1e9),
           "table energy: price of all hosts of a run for an hour; 0: not given"},
          {"sacct", Value::text_value<std::filesystem::path>(&O::sacct, "FILE"),
           "table energy: energy of job steps, as printed by `sacct --parsable2 "
           "--format=JobIDRaw,ConsumedEnergyRaw`"},
          {"calibration",
           Value::parsed("FILE", "", &O::calibration, parse_curve_files),
           "hold runs against this calibration instead of their own: a file of gradsync-calibrate, "
           "or what nccl-tests (-J too), osu_allreduce or IMB-MPI1 printed; FILE:ranks=N where it "
           "does not tell the ranks; may be repeated",
           {},
           0,
           /*repeatable=*/true},
          {"at-epoch", Value::integer(table(&T::at_epoch), 0, kMostCounted, "5th, and last"),
           "table large-batch: figures of the Nth epoch"},
          {"target-accuracy", Value::number(table(&T::target_percent), 0, 100),
           "table time-to-accuracy: test accuracy to reach, in %; 0: the runs' --target-accuracy"},
          {"fom", Value::on_off(&O::fom),
           "a line `FOM name value unit` for each figure of merit, after the tables"},
          {"list", Value::on_off(&O::list), "list the tables, formats and plots, and end"},
      }};
}

BoundGroup<O> place_options() {
  using Path = std::filesystem::path;
  return {
      "Where to",
      {
          {"as", Value::text_value(&O::as, "LAYOUT"),
           "instead of tables, those of a published report in its own layout, with published and "
           "measured values: report-a to report-e, or a file LAYOUT.json"},
          {"plots", Value::either("no", "yes", &O::plots),
           "draw the plots into DIR as SVG, and as PNG and PDF with rsvg-convert"},
          {"html", Value::text_value<Path>(&O::html, "FILE"),
           "one page with all of it, for a browser; needs no network"},
          {"title", Value::text_value(&O::title, "TEXT"), "title of the page"},
          {"places", Value::on_off(&O::places),
           "host names and absolute paths on the page; without it hosts are numbered"},
          {"trace", Value::text_value<Path>(&O::trace, "FILE"),
           "iterations of one run for ui.perfetto.dev or chrome://tracing; compressed if the name "
           "ends in .gz"},
          {"trace-iterations", Value::text_value(&O::trace_iterations, "A-B"),
           "iterations of the trace, counted from 1; default: up to 10 steady ones"},
      }};
}

BoundGroup<O> trace_options() {
  return {"Traces of torch.profiler",
          {
              {"trace-in",
               Value::texts(&O::trace_in, "FILE"),
               "traces of one job, one a rank, as a run beside the others; with it named files "
               "that end in .json or .json.gz are traces as well; a folder stands for those in it; "
               "may be repeated",
               {},
               0,
               /*repeatable=*/true},
              {"trace-batch", Value::integer(&O::trace_batch, 0, kMostCounted, "unknown"),
               "samples per rank and iteration of that job, which traces do not hold; runs of "
               "which it is unknown are compared with none"},
              {"trace-model", Value::text_value(&O::trace_model, "NAME"),
               "name of the network of that job, which traces do not hold; default: the name of "
               "their folder"},
              {"save", Value::text_value<std::filesystem::path>(&O::save, "RUN.h5"),
               "write that run as a run file"},
          }};
}

ProgramOptions<O> all_options() {
  const BoundGroup<OutputOptions> output = output_options(
      "folder for <table>.<format> and the plots; text goes to standard output as well. "
      "Without it all formats go there and no plots are made");
  return {"report",
          {table_options(), of_part(&O::output, output), place_options(), trace_options(),
           of_part(&O::claims, claim_options())}};
}

/// Tables that options on the command line are about: their help begins with "table NAME:".
std::set<std::string> tables_asked(const OptionValues& values) {
  constexpr std::string_view kAbout = "table ";
  std::set<std::string> names;
  for (const OptionSpec& option : report_option_table())
    if (option.help.starts_with(kAbout) && values.at(option.name).source == "command line")
      names.insert(option.help.substr(kAbout.size(), option.help.find(':') - kAbout.size()));
  return names;
}

/// Where no table is named: all that are kept in files. Files of gradsync-quantize have no summary
/// of their own: all tables.
std::vector<const TableSpec*> usual_tables(bool kept, const std::set<std::string>& asked = {}) {
  std::vector<const TableSpec*> result;
  for (const TableSpec& table : tables())
    if (kept || table.printed_by_default() || asked.contains(table.name)) result.push_back(&table);
  return result;
}

RunSet load(const std::vector<ClaimedFile>& files, const ReportOptions& options) {
  const auto of_options = option_files(options);
  std::vector<std::string> failures;
  std::vector<FoundRun> runs;
  for (const ClaimedFile& file : files) {
    if (file.path.ends_with(".failed.json"))
      failures.push_back(file.path);
    else if (!file.path.ends_with(".json") && !of_options.contains(file.path))
      runs.push_back({file.path, true});
  }
  RunSet set = load_runs(runs, {}, options.calibration);
  set.failed = find_failed_cells(failures, set.remarks);
  return set;
}

}  // namespace

OptionTable report_option_table() {
  return all_options().table();
}

ProgramHelp report_help() {
  ProgramHelp help{"gradsync-report",
                   "gradsync-report [OPTION...] RUN...",
                   "Prints a verdict and tables of run files, and writes plots and pages.",
                   "gradsync-report results/demo\n"
                   "gradsync-report results --html report.html\n"
                   "gradsync-report results/report-a --as report-a\n"
                   "gradsync-report compare old new\n"
                   "gradsync-report run.h5 killed.h5.journal --table split --format markdown\n"
                   "gradsync-report results --format csv,json --output tables\n"
                   "gradsync-report results --claims claims.json\n"
                   "gradsync-report --verify-claims claims.json\n"
                   "gradsync-report run.h5 --trace trace.json.gz --trace-iterations 5-8\n"
                   "gradsync-report --trace-in traces/*.json.gz --save run.h5",
                   {ExitCode::kCheckFailed},
                   {"table", "as", "verdict", "what-if", "format", "output", "wide", "plots",
                    "html", "trace", "trace-in", "list"}};
  help.listing = list_of("Tables (--table)", tables());
  return help;
}

ReportOptions report_options(const OptionValues& values) {
  ReportOptions options = all_options().read(values);
  if (options.trace.empty() && !options.trace_iterations.empty())
    throw option_error(values, "trace-iterations", "needs --trace FILE");
  if (options.trace_in.empty())
    for (const auto& [name, given] : {std::pair{"save", !options.save.empty()},
                                      std::pair{"trace-batch", options.trace_batch > 0},
                                      std::pair{"trace-model", !options.trace_model.empty()}})
      if (given) throw option_error(values, name, "needs --trace-in FILE");
  if (!options.trace_in.empty() && options.save.empty() && !options.claims.claims.empty())
    throw option_error(values, "claims", "names files, and a run of traces is none",
                       "add --save RUN.h5");
  if (!options.as.empty() && options.tables_chosen)
    throw option_error(values, "as", "together with --table", "give one of the two");
  const bool all =
      options.as.empty() && (!options.tables_chosen || options.tables.size() == tables().size());
  options.verdict = options.verdict_wanted == kAuto ? all : options.verdict_wanted != "no";
  const bool usual = !options.tables_chosen && options.as.empty();
  if (usual) {
    options.tables_asked = tables_asked(values);
    options.tables = usual_tables(!options.output.output.empty() || !options.claims.claims.empty(),
                                  options.tables_asked);
  }
  options.page_tables = usual ? usual_tables(true) : options.tables;
  options.table.peak_flop_per_s = positive(options.peak_tflops * 1e12);
  options.table.price_per_hour = positive(options.price_per_hour);
  if (options.link_gb_per_s > 0) options.table.link_bytes_per_s = options.link_gb_per_s * kGB;
  return options;
}

std::vector<std::string> read_option_files(ReportOptions& options) {
  if (!options.sacct.empty()) options.table.step_energies = read_step_energies(options.sacct);
  return read_network(options.table.what_if);
}

std::set<std::filesystem::path> option_files(const ReportOptions& options) {
  std::set<std::filesystem::path> files;
  for (const CurveFile& file : options.calibration)
    files.insert(file.path);
  if (options.table.what_if.network) files.insert(options.table.what_if.network->path);
  if (!options.sacct.empty()) files.insert(options.sacct);
  return files;
}

std::vector<Table> tables_of_claims(const OptionValues& values,
                                    const std::vector<ClaimedFile>& files) {
  ReportOptions options = report_options(values);
  read_option_files(options);
  const RunSet set = load(files, options);
  const RunStudy runs(set);
  std::vector<Table> made;
  for (const TableSpec& spec : tables())
    if (!options.tables_chosen || contains(options.tables, &spec))
      made.push_back(spec.make(runs, options.table));
  return made;
}

std::string report_list() {
  return list_of("tables (--table)", tables()) + list_of("formats (--format)", formats()) +
         list_of("plots (with --output)", plots());
}

}  // namespace gradsync::report
