#include "analysis/output/report_options.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/plots/registry.h"
#include "record/bus_bandwidth.h"
#include "support/parse.h"

namespace gradsync::report {

namespace {

using O = ReportOptions;
using Value = BoundValue<O>;

constexpr std::int64_t kMostCounted = 1000000;

template <typename Spec>
std::vector<std::string> names_of(const std::vector<Spec>& specs) {
  std::vector<std::string> names;
  for (const Spec& spec : specs)
    names.push_back(spec.name);
  return names;
}

/// The names in a repeatable option of comma lists.
std::vector<std::string> names_in(const OptionValues& values, const std::string& option) {
  std::vector<std::string> names;
  for (const std::string& list : list_option(values, option))
    for (const std::string& name : split_list(list, ','))
      names.push_back(name);
  return names;
}

/// The names in the option, each of which is `all` or in `known`.
std::vector<std::string> known_names(const OptionValues& values, const std::string& option,
                                     std::vector<std::string> known) {
  const auto names = names_in(values, option);
  known.emplace_back("all");
  for (const std::string& name : names)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw option_error(values, option,
                         fmt::format("'{}' is none of {}{}", name, fmt::join(known, ", "),
                                     did_you_mean(name, known)));
  return names;
}

/// The entries of `specs` that an option names, each once, in the order of the registry.
template <typename Spec>
std::vector<const Spec*> chosen(const OptionValues& values, const std::string& option,
                                const std::vector<Spec>& specs) {
  const auto names = known_names(values, option, names_of(specs));
  std::vector<const Spec*> result;
  for (const Spec& spec : specs)
    if (std::any_of(names.begin(), names.end(),
                    [&](const auto& name) { return name == spec.name || name == "all"; }))
      result.push_back(&spec);
  return result;
}

std::vector<BandwidthConvention> conventions_option(const OptionValues& values) {
  std::vector<std::string> known(kConventionNames.begin(), kConventionNames.end());
  const auto names = known_names(values, "bandwidth-convention", known);
  std::vector<BandwidthConvention> conventions;
  for (const std::string_view name : kConventionNames)
    if (std::any_of(names.begin(), names.end(),
                    [&](const auto& one) { return one == name || one == "all"; }))
      conventions.push_back(*parse_convention(name));
  return conventions;
}

template <typename Spec>
std::string list_of(const std::string& head, const std::vector<Spec>& specs) {
  std::string text = head + "\n";
  for (const Spec& spec : specs)
    text += fmt::format("  {:<16}{}\n", spec.name, spec.description);
  return text;
}

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

template <typename Spec>
std::string joined_names(const std::vector<Spec>& specs) {
  return fmt::format("{}", fmt::join(names_of(specs), "|"));
}

/// A repeatable option that `read` reads and whose default is `usual`.
Value names_value(const std::string& shown, const std::string& usual,
                  std::function<void(const OptionValues&, const std::string&, O&)> read) {
  return {shown, "", std::move(read), [usual](const O&) { return usual; }};
}

/// Which tables, and how their numbers are computed.
BoundGroup<O> table_options() {
  using T = TableOptions;
  const auto table = [](auto member) { return part_of(&O::table, member); };
  const auto listed = [](const char* name, Value value, const char* help) {
    return BoundOption<O>{name, std::move(value), help, {}, 0, /*repeatable=*/true};
  };
  return {
      "What",
      {
          listed("table",
                 names_value(joined_names(tables()) + "|all", "all",
                             [](const OptionValues& values, const std::string& name, O& options) {
                               if (options.published.file.empty())
                                 options.tables = chosen(values, name, tables());
                               else
                                 options.published.tables =
                                     chosen(values, name, published::published_tables());
                             }),
                 "tables to make; several as a list with commas"),
          {"log-every", Value::integer(table(&T::log_every), 0, kMostCounted, "none"),
           "table modes: loss at every Nth iteration"},
          {"predict-ranks", Value::parsed("LIST", "", table(&T::predict_ranks), parse_counts),
           "table prediction: numbers of ranks, e.g. 8,16,64, each 1 to 1000000; empty: 2, 4 and "
           "8 times the most ranks of the runs"},
          {"predict-batch", Value::parsed("LIST", "", table(&T::predict_batches), parse_counts),
           "table prediction: batches per rank, each 1 to 1000000; empty: half the smallest, those "
           "of the runs, twice the largest"},
          {"what-if", Value::parsed("KEY=VALUE,...", "", table(&T::what_if), parse_what_if),
           "table what-if: replay the recorded buckets with bucket-cap=4MiB, first-bucket=1MiB, "
           "wire=bf16, bandwidth=1GB/s, latency=20us, ranks=16 or batch=64"},
          {"verdict", Value::choice(&O::verdict_wanted, {"auto", "yes", "no"}),
           "a few plain sentences after the tables, with the data each rests on; auto: with all "
           "tables"},
          {"force-merge", Value::on_off(&O::force_merge),
           "put repeats together that differ in placement, device, versions, threads or length; "
           "every table says so. Without it such runs end the report with 65"},
          listed("bandwidth-convention",
                 names_value(fmt::format("{}|all", fmt::join(kConventionNames, "|")), "busbw",
                             [](const OptionValues& values, const std::string&, O& options) {
                               options.table.conventions = conventions_option(values);
                             }),
                 "table bandwidth: how a time becomes a bandwidth; several as a list with commas"),
          {"link-bandwidth", Value::number(&O::link_gb_per_s, 0, 1e6),
           "table bandwidth: B of the predicted all-reduce times, in GB/s (1e9 bytes); 0: the "
           "plateau of calibration"},
          {"at-epoch", Value::integer(table(&T::at_epoch), 0, kMostCounted, "last"),
           "table large-batch: figures of the Nth epoch"},
          {"bootstrap-seed", Value::integer<std::uint64_t>(table(&T::seed), 0, kMostCounted),
           "of the resamples that intervals of ratios are from"},
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
          format_option(),
          {"output", Value::text_value<Path>(&O::output, "DIR"),
           "folder for <table>.<format> and the plots; text goes to standard output as well. "
           "Without it all formats go there and no plots are made"},
          {"plots", Value::either("no", "yes", &O::plots),
           "draw the plots into DIR with gnuplot, as PNG, SVG and PDF"},
          {"html", Value::text_value<Path>(&O::html, "FILE"),
           "one page with all of it, for a browser; needs no network"},
          {"trace", Value::text_value<Path>(&O::trace, "FILE"),
           "iterations of one run for ui.perfetto.dev or chrome://tracing; compressed if the name "
           "ends in .gz"},
          {"trace-iterations", Value::text_value(&O::trace_iterations, "A-B"),
           "which ones, counted from 1; without it up to 10 steady ones"},
      }};
}

BoundGroup<O> claim_options() {
  using Path = std::filesystem::path;
  return {"Claims",
          {
              {"claims", Value::text_value<Path>(&O::claims, "FILE"),
               "write for each number of the tables its id, formula, files, data set and value, "
               "as JSON"},
              {"verify-claims", Value::text_value<Path>(&O::verify_claims, "FILE"),
               "compute the numbers of a file of claims again, and end with 1 at the first that "
               "differs"},
          }};
}

/// --published comes before --table, which takes other names with it.
ProgramOptions<O> all_options() {
  return {"report",
          {of_part(&O::published, published::published_options()), table_options(), place_options(),
           claim_options()}};
}

}  // namespace

BoundOption<O> format_option() {
  return {"format",
          names_value(fmt::format("{}|all", fmt::join(names_of(formats()), "|")), "text",
                      [](const OptionValues& values, const std::string& name, O& options) {
                        options.formats = chosen(values, name, formats());
                      }),
          "forms of the tables; several as a list with commas",
          {},
          0,
          /*repeatable=*/true};
}

OptionTable report_option_table() {
  OptionTable table = all_options().table();
  // Published numbers last in --help.
  std::stable_partition(table.begin(), table.end(), [](const OptionSpec& option) {
    return option.group != published::published_options().name;
  });
  return table;
}

std::string report_help() {
  return help_text("gradsync-report [options] RUN...",
                   "gradsync-report results/demo\n"
                   "gradsync-report run.h5 killed.h5.journal --table split --format markdown\n"
                   "gradsync-report results --format csv,json --output tables\n"
                   "gradsync-report results --claims claims.json\n"
                   "gradsync-report --verify-claims claims.json\n"
                   "gradsync-report --published results/published/reports.csv\n"
                   "gradsync-report results --html report.html\n"
                   "gradsync-report run.h5 --trace trace.json.gz --trace-iterations 5-8\n"
                   "gradsync-report compare old new    # gradsync-report compare --help says more",
                   report_option_table());
}

ReportOptions report_options(const OptionValues& values) {
  ReportOptions options = all_options().read(values);
  if (options.trace.empty() && !options.trace_iterations.empty())
    throw option_error(values, "trace-iterations", "needs --trace FILE");
  options.verdict = options.verdict_wanted == "auto" ? options.tables.size() == tables().size()
                                                     : options.verdict_wanted == "yes";
  if (options.link_gb_per_s > 0) options.table.link_bytes_per_s = options.link_gb_per_s * kGB;
  return options;
}

std::string report_list() {
  return list_of("tables (--table)", tables()) +
         list_of("tables of --published", published::published_tables()) +
         list_of("formats (--format)", formats()) + list_of("plots (with --output)", plots());
}

}  // namespace gradsync::report
