#include "analysis/output/report_options.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/plots/registry.h"
#include "record/bus_bandwidth.h"
#include "support/parse.h"

namespace gradsync::report {

namespace {

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

published::PublishedOptions published_part(const OptionValues& values) {
  published::PublishedOptions options = published::published_options(values);
  if (options.file.empty()) return options;
  options.tables = chosen(values, "table", published::published_tables());
  return options;
}

std::vector<std::int64_t> counts_in(const OptionValues& values, const std::string& option) {
  std::vector<std::int64_t> counts;
  const std::string text = text_option(values, option);
  if (text.empty()) return counts;
  for (const std::string& entry : split_list(text, ',')) {
    try {
      counts.push_back(parse_integer(entry));
    } catch (const Error& error) {
      throw option_error(values, option, error.what());
    }
    if (counts.back() < 1 || counts.back() > kMostCounted)
      throw option_error(values, option,
                         fmt::format("{} is not from 1 to {}", entry, kMostCounted));
  }
  return counts;
}

WhatIf what_if_in(const OptionValues& values) {
  try {
    return parse_what_if(text_option(values, "what-if"));
  } catch (const Error& error) {
    throw option_error(values, "what-if", error.what(), error.fix());
  }
}

template <typename Spec>
std::string joined_names(const std::vector<Spec>& specs) {
  return fmt::format("{}", fmt::join(names_of(specs), "|"));
}

/// Which tables, and what goes into them.
OptionTable table_options() {
  return {
      {"table", joined_names(tables()) + "|all", "all",
       "tables to make; several as a list with commas", "What", true},
      {"log-every", "N", "20", "table modes: loss at every Nth iteration, 0 (none) to 1000000",
       "What"},
      {"predict-ranks", "LIST", "",
       "table prediction: numbers of ranks, e.g. 8,16,64, each 1 to 1000000; empty: 2, 4 and 8 "
       "times the most ranks of the runs",
       "What"},
      {"predict-batch", "LIST", "",
       "table prediction: batches per rank, each 1 to 1000000; empty: half the smallest, those of "
       "the runs, twice the largest",
       "What"},
      {"what-if", "KEY=VALUE,...", "",
       "table what-if: replay the recorded buckets with bucket-cap=4MiB, first-bucket=1MiB, "
       "wire=bf16, bandwidth=1GB/s, latency=20us, ranks=16 or batch=64",
       "What"},
      {"verdict", "auto|yes|no", "auto",
       "a few plain sentences after the tables, with the data each rests on; auto: with all tables",
       "What"},
      {"force-merge", "", "false",
       "put repeats together that differ in placement, device, versions, threads or length; "
       "every table says so. Without it such runs end the report with 65",
       "What"},
  };
}

/// How their numbers are computed.
OptionTable number_options() {
  return {
      {"bandwidth-convention", fmt::format("{}|all", fmt::join(kConventionNames, "|")), "busbw",
       "table bandwidth: how a time becomes a bandwidth; several as a list with commas", "What",
       true},
      {"link-bandwidth", "GB/S", "0",
       "table bandwidth: B of the predicted all-reduce times, in GB/s (1e9 bytes), up to 1000000; "
       "0: the plateau of calibration",
       "What"},
      {"at-epoch", "N", "0", "table large-batch: figures of the Nth epoch, 0 (last) to 1000000",
       "What"},
      {"bootstrap-seed", "N", "1",
       "of the resamples that intervals of ratios are from, 0 to 1000000", "What"},
      {"fom", "", "false",
       "a line `FOM name value unit` for each figure of merit, after the tables", "What"},
      {"list", "", "false", "list the tables, formats and plots, and end", "What"},
  };
}

OptionTable place_options() {
  return {
      {"format", format_choices(), "text", "forms of the tables; several as a list with commas",
       "Where to", true},
      {"output", "DIR", "",
       "folder for <table>.<format> and the plots; text goes to standard output as well. Without "
       "it all formats go there and no plots are made",
       "Where to"},
      {"plots", "yes|no", "yes", "draw the plots into DIR with gnuplot, as PNG, SVG and PDF",
       "Where to"},
      {"html", "FILE", "", "one page with all of it, for a browser; needs no network", "Where to"},
      {"trace", "FILE", "",
       "iterations of one run for ui.perfetto.dev or chrome://tracing; compressed if the name ends "
       "in .gz",
       "Where to"},
      {"trace-iterations", "A-B", "", "which ones, counted from 1; without it up to 10 steady ones",
       "Where to"},
  };
}

OptionTable claim_options() {
  return {
      {"claims", "FILE", "",
       "write for each number of the tables its id, formula, files, data set and value, as JSON",
       "Claims"},
      {"verify-claims", "FILE", "",
       "compute the numbers of a file of claims anew, and end with 1 at the first that differs",
       "Claims"},
  };
}

}  // namespace

std::string format_choices() {
  return fmt::format("{}|all", fmt::join(names_of(formats()), "|"));
}

std::vector<const FormatSpec*> chosen_formats(const OptionValues& values) {
  return chosen(values, "format", formats());
}

OptionTable report_option_table() {
  OptionTable table;
  for (const auto part : {table_options, number_options, place_options, claim_options,
                          published::published_option_table})
    for (OptionSpec& option : part())
      table.push_back(std::move(option));
  return scoped("report", table);
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
  ReportOptions options;
  options.published = published_part(values);
  if (options.published.file.empty()) options.tables = chosen(values, "table", tables());
  options.formats = chosen_formats(values);
  options.output = text_option(values, "output");
  options.html = text_option(values, "html");
  options.trace = text_option(values, "trace");
  options.trace_iterations = text_option(values, "trace-iterations");
  if (options.trace.empty() && !options.trace_iterations.empty())
    throw option_error(values, "trace-iterations", "needs --trace FILE");
  options.plots = choice_option(values, "plots", {"yes", "no"}) == "yes";
  const std::string verdict = choice_option(values, "verdict", {"auto", "yes", "no"});
  options.verdict = verdict == "auto" ? options.tables.size() == tables().size() : verdict == "yes";
  options.force_merge = switch_option(values, "force-merge");
  options.claims = text_option(values, "claims");
  options.verify_claims = text_option(values, "verify-claims");
  options.table.log_every = integer_option(values, "log-every", 0, 1000000);
  options.fom = switch_option(values, "fom");
  options.table.seed =
      static_cast<std::uint64_t>(integer_option(values, "bootstrap-seed", 0, 1000000));
  options.table.conventions = conventions_option(values);
  const double link = number_option(values, "link-bandwidth", 0, 1e6);
  if (link > 0) options.table.link_bytes_per_s = link * kGB;
  options.table.at_epoch = integer_option(values, "at-epoch", 0, 1000000);
  options.table.predict_ranks = counts_in(values, "predict-ranks");
  options.table.predict_batches = counts_in(values, "predict-batch");
  options.table.what_if = what_if_in(values);
  return options;
}

std::string report_list() {
  return list_of("tables (--table)", tables()) +
         list_of("tables of --published", published::published_tables()) +
         list_of("formats (--format)", formats()) + list_of("plots (with --output)", plots());
}

}  // namespace gradsync::report
