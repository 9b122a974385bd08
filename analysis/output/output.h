// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/plots/plots.h"
#include "analysis/verdict/verdict.h"
#include "base/cli/bound_option.h"
#include "base/ranges.h"
#include "base/table.h"

namespace gradsync::report {

// --- options that name entries of a registry, which have a `name` and a `description`
// -------------

template <typename Spec>
std::vector<std::string> names_of(const std::vector<Spec>& specs) {
  return each(specs, &Spec::name);
}

/// The entries of `known` that a repeatable option of comma lists names, in the order of `known`;
/// "all" is all of them. Throws Error kUsage for any other name.
std::vector<std::string> chosen_names(const OptionValues& values, const std::string& option,
                                      const std::vector<std::string>& known);

template <typename Spec>
std::vector<const Spec*> chosen(const OptionValues& values, const std::string& option,
                                const std::vector<Spec>& specs) {
  const auto names = chosen_names(values, option, names_of(specs));
  std::vector<const Spec*> result;
  for (const Spec& spec : specs)
    if (contains(names, spec.name)) result.push_back(&spec);
  return result;
}

/// A repeatable option of names, which `read` reads and whose default is `usual`. The help has no
/// list of many: ProgramHelp::listing has a line for each.
template <typename Settings>
BoundOption<Settings> names_option(
    const std::string& name, const std::vector<std::string>& known, const std::string& usual,
    const std::string& help,
    std::function<void(const OptionValues&, const std::string&, Settings&)> read) {
  std::vector<std::string> choices = known;
  choices.emplace_back("all");
  return {name,
          {"NAME,...", known.size() > 8 ? "" : fmt::format(": {}", fmt::join(choices, ", ")),
           std::move(read), [usual](const Settings&) { return usual; }, choices},
          help,
          {},
          0,
          /*repeatable=*/true};
}

/// The entries of a registry for --list, below `head`.
template <typename Spec>
std::string list_of(const std::string& head, const std::vector<Spec>& specs) {
  std::size_t longest = 0;
  for (const Spec& spec : specs)
    longest = std::max(longest, spec.name.size());
  std::string text = head + "\n";
  for (const Spec& spec : specs)
    text += fmt::format("  {:<{}}  {}\n", spec.name, longest, spec.description);
  return text;
}

// --- where results go ----------------------------------------------------------------------------

/// In which forms tables are written, and where to.
struct OutputOptions {
  std::vector<const FormatSpec*> formats;
  std::filesystem::path output;  ///< a folder; empty: to stdout
  bool wide = false;             ///< all columns and notes, on standard output and in LaTeX
  std::vector<std::string> columns_chosen;  ///< names or heads; empty: all

  /// The tables with the chosen columns alone, in that order; a table that has none of them stays
  /// as it is. Throws Error kUsage for a column that no table has.
  std::vector<Table> with_chosen_columns(std::vector<Table> tables) const;

  /// output_columns(); 0: no limit.
  std::size_t columns() const;
};

/// --format and --output; `folder_help` says what the folder receives.
BoundGroup<OutputOptions> output_options(const std::string& folder_help);

/// The table with the remarks among its notes.
Table with_remarks(Table table, const std::vector<std::string>& remarks);

/// Where results go: standard output, a folder, or both.
class ReportOutput {
 public:
  /// Makes the folder if one is wanted. Throws Error kCannotCreate.
  ReportOutput(const OutputOptions& options, std::ostream& out, std::ostream& log);

  /// Tables in every format wanted; files appear whole or not at all. Those that `is_printed` go to
  /// standard output too where there is a folder: as text, after an index of many. `remarks` is
  /// what a reader of any of them must know about the runs: before the texts with all notes, and
  /// among the notes of each file.
  void write(const std::vector<Table>& tables, const std::vector<std::string>& remarks = {},
             const std::function<bool(const Table&)>& is_printed = {});

  /// As text on standard output where text is wanted; as verdict.md and verdict.json in the folder.
  void write_verdict(const std::vector<VerdictClause>& clauses);

  /// All plots, if there is a folder. A plot that cannot be drawn is a warning:
  /// its data and its script are there, and the tables are what counts.
  void draw_plots(const std::vector<NamedChart>& charts);

 private:
  void write_one(const Table& table, const std::vector<std::string>& remarks, bool printed);
  void print(const std::string& text);

  const OutputOptions& options_;
  std::ostream& out_;
  std::ostream& log_;
  bool first_ = true;
};

}  // namespace gradsync::report
