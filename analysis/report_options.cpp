#include "analysis/report_options.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/plots/registry.h"
#include "support/parse.h"

namespace gradsync {

namespace {

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

/// The entries of `specs` that an option names, each once, in the order of the registry.
template <typename Spec>
std::vector<const Spec*> chosen(const OptionValues& values, const std::string& option,
                                const std::vector<Spec>& specs) {
  const auto names = names_in(values, option);
  std::vector<std::string> known = names_of(specs);
  known.push_back("all");
  for (const std::string& name : names)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw option_error(values, option,
                         fmt::format("'{}' is none of {}{}", name, fmt::join(known, ", "),
                                     did_you_mean(name, known)));
  std::vector<const Spec*> result;
  for (const Spec& spec : specs)
    if (std::any_of(names.begin(), names.end(),
                    [&](const auto& name) { return name == spec.name || name == "all"; }))
      result.push_back(&spec);
  return result;
}

template <typename Spec>
std::string list_of(const std::string& head, const std::vector<Spec>& specs) {
  std::string text = head + "\n";
  for (const Spec& spec : specs)
    text += fmt::format("  {:<16}{}\n", spec.name, spec.description);
  return text;
}

}  // namespace

OptionTable report_option_table() {
  const auto names = [](const auto& specs) {
    return fmt::format("{}", fmt::join(names_of(specs), "|"));
  };
  const OptionTable table = {
      {"table", names(tables()) + "|all", "all", "tables to make; several as a list with commas",
       "What", true},
      {"log-every", "N", "20", "table modes: loss at every Nth iteration, 0 (none) to 1000000",
       "What"},
      {"verdict", "auto|yes|no", "auto",
       "a few plain sentences after the tables, with the data each rests on; auto: with all tables",
       "What"},
      {"force-merge", "", "false",
       "put repeats together that differ in placement, device, versions, precision or threads; "
       "every table says so. Without it such runs end the report with 65",
       "What"},
      {"list", "", "false", "list the tables, formats and plots, and end", "What"},
      {"format", names(formats()) + "|all", "text",
       "forms of the tables; several as a list with commas", "Where to", true},
      {"output", "DIR", "",
       "folder for <table>.<format> and the plots; text goes to standard output as well. Without "
       "it all formats go there and no plots are made",
       "Where to"},
      {"plots", "yes|no", "yes", "draw the plots into DIR with gnuplot, as PNG and SVG",
       "Where to"},
  };
  return scoped("report", table);
}

std::string report_help() {
  return help_text("gradsync-report [options] RUN...",
                   "gradsync-report results/demo\n"
                   "gradsync-report run.h5 killed.h5.journal --table split --format markdown\n"
                   "gradsync-report results --format csv,json --output tables",
                   report_option_table());
}

ReportOptions report_options(const OptionValues& values) {
  ReportOptions options;
  options.tables = chosen(values, "table", tables());
  options.formats = chosen(values, "format", formats());
  options.output = text_option(values, "output");
  options.plots = choice_option(values, "plots", {"yes", "no"}) == "yes";
  const std::string verdict = choice_option(values, "verdict", {"auto", "yes", "no"});
  options.verdict = verdict == "auto" ? options.tables.size() == tables().size() : verdict == "yes";
  options.force_merge = switch_option(values, "force-merge");
  options.table.log_every = integer_option(values, "log-every", 0, 1000000);
  return options;
}

std::string report_list() {
  return list_of("tables (--table)", tables()) + list_of("formats (--format)", formats()) +
         list_of("plots (with --output)", plots());
}

}  // namespace gradsync
