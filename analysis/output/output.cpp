// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/output/output.h"

#include <map>
#include <ostream>
#include <sstream>

#include <fmt/ranges.h>

#include "analysis/plots/svg.h"
#include "base/error.h"
#include "base/file.h"

namespace gradsync::report {

std::vector<std::string> chosen_names(const OptionValues& values, const std::string& option,
                                      const std::vector<std::string>& known) {
  std::vector<std::string> named;
  for (const std::string& list : list_option(values, option))
    for (const std::string& name : split_list(list, ','))
      named.push_back(name);
  const auto is_named = [&](const std::string& name) { return contains(named, name); };

  std::vector<std::string> choices = known;
  choices.emplace_back("all");
  for (const std::string& name : named)
    if (!contains(choices, name)) {
      const Error error = no_such(option, name, choices);
      throw option_error(values, option, error.what(), error.fix());
    }
  std::vector<std::string> result;
  for (const std::string& name : known)
    if (is_named(name) || is_named("all")) result.push_back(name);
  return result;
}

std::size_t OutputOptions::columns() const {
  return wide ? 0 : output_columns();
}

namespace {

/// With their intervals.
std::vector<std::size_t> places_of(const Table& table, const std::vector<std::string>& names) {
  std::vector<std::size_t> places;
  for (const std::string& name : names)
    for (std::size_t c = 0; c < table.columns.size(); ++c)
      if (table.columns[c].name == name || table.columns[c].head == name)
        for (std::size_t i = c; i <= c + (has_interval(table, c) ? 2 : 0); ++i)
          add_once(places, i);
  return places;
}

Table with_columns(const Table& table, const std::vector<std::size_t>& places) {
  Table chosen{table.name, table.title, table.notes, {}, {}, table.sources};
  for (const std::size_t c : places)
    chosen.columns.push_back(table.columns[c]);
  for (const auto& row : table.rows) {
    chosen.rows.emplace_back();
    for (const std::size_t c : places)
      chosen.rows.back().push_back(row[c]);
  }
  return chosen;
}

void require_known(const std::vector<Table>& tables, const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (const Table& table : tables)
    for (const Column& column : table.columns)
      for (const std::string& name : {column.head, column.name})
        add_once(known, name);
  for (const std::string& name : names)
    if (!contains(known, name))
      throw Error(ExitCode::kUsage,
                  fmt::format("--columns: no table has a column '{}'{}", excerpt(name),
                              did_you_mean(name, known)),
                  fmt::format("the columns: {}", fmt::join(known, ", ")));
}

}  // namespace

std::vector<Table> OutputOptions::with_chosen_columns(std::vector<Table> tables) const {
  require_known(tables, columns_chosen);
  for (Table& table : tables)
    if (const auto places = places_of(table, columns_chosen); !places.empty())
      table = with_columns(table, places);
  return tables;
}

BoundGroup<OutputOptions> output_options(const std::string& folder_help) {
  using O = OutputOptions;
  return {"Where to",
          {
              names_option<O>("format", names_of(formats()), "text",
                              "formats of the tables; several as a list with commas",
                              [](const OptionValues& values, const std::string& name, O& options) {
                                options.formats = chosen(values, name, formats());
                              }),
              {"output", BoundValue<O>::text_value<std::filesystem::path>(&O::output, "DIR"),
               folder_help},
              {"columns",
               {"NAME,...", "",
                [](const OptionValues& values, const std::string& name, O& options) {
                  options.columns_chosen = split_list(text_option(values, name), ',');
                  std::erase(options.columns_chosen, "");
                },
                [](const O&) { return std::string(); }},
               "columns of the tables, by their heads or the names of CSV; tables without them "
               "stay as they are"},
              {"wide", BoundValue<O>::on_off(&O::wide),
               "all columns and notes; without it a line fits the terminal (100 characters where "
               "there is none), and a LaTeX table an A4 page"},
          }};
}

namespace {

bool has_text(const OutputOptions& options) {
  return contains(options.formats, "text", &FormatSpec::name);
}

std::string text_for(const OutputOptions& options, const Table& table) {
  const std::size_t width = options.columns();
  if (width == 0) return render_text(table);
  std::ostringstream text;
  print_narrow_text(text, table, width, "--wide");
  return text.str();
}

/// A line a table: name, rows, title.
std::string index_of(const std::vector<const Table*>& tables) {
  std::size_t longest = 0;
  for (const Table* table : tables)
    longest = std::max(longest, table->name.size());
  std::string text = "Tables\n";
  for (const Table* table : tables)
    text += fmt::format("  {:<{}}  {:>9}  {}\n", table->name, longest,
                        count_text(table->rows.size(), "row"), table->title);
  return text;
}

}  // namespace

ReportOutput::ReportOutput(const OutputOptions& options, std::ostream& out, std::ostream& log)
    : options_(options), out_(out), log_(log) {
  if (options_.output.empty()) return;
  std::error_code failure;
  std::filesystem::create_directories(options_.output, failure);
  if (failure)
    throw Error(
        ExitCode::kCannotCreate,
        fmt::format("cannot make the folder '{}': {}", options_.output.string(), failure.message()),
        "choose another --output");
}

void ReportOutput::print(const std::string& text) {
  out_ << (first_ ? "" : "\n") << printable(text) << std::flush;
  first_ = false;
}

Table with_remarks(Table table, const std::vector<std::string>& remarks) {
  for (const std::string& remark : remarks)
    table.notes.push_back("note: " + remark);
  return table;
}

void ReportOutput::write(const std::vector<Table>& tables, const std::vector<std::string>& remarks,
                         const std::function<bool(const Table&)>& is_printed) {
  constexpr std::size_t kFewTables = 3;
  std::vector<const Table*> printed;
  for (const Table& table : tables)
    if (!is_printed || is_printed(table)) printed.push_back(&table);
  if (has_text(options_) && printed.size() > kFewTables) print(index_of(printed));
  // A narrow text has the first notes only; on standard error the remarks are in any case.
  if (has_text(options_) && options_.wide && !printed.empty() && !remarks.empty())
    print(fmt::format("note: {}\n", fmt::join(remarks, "\nnote: ")));
  for (const Table& table : tables)
    write_one(table, remarks, contains(printed, &table));
}

void ReportOutput::write_one(const Table& table, const std::vector<std::string>& remarks,
                             bool printed) {
  const bool folder = !options_.output.empty();
  // Cells are printable; titles and notes hold names of files, which are anybody's.
  Table shown = with_remarks(table, remarks);
  shown.title = printable(shown.title);
  for (std::string& note : shown.notes)
    note = printable(note);
  for (const FormatSpec* format : options_.formats) {
    const bool is_text = format->name == "text";
    if (printed && is_text) print(text_for(options_, table));
    if (!folder && (is_text || !printed)) continue;
    const std::string text = format->render(shown, options_.wide);
    if (folder)
      write_file_atomically(options_.output / (table.name + "." + format->extension), text);
    else
      print(text);
  }
}

void ReportOutput::write_verdict(const std::vector<VerdictClause>& clauses) {
  if (!options_.output.empty()) {
    write_file_atomically(options_.output / "verdict.md", printable(verdict_markdown(clauses)));
    write_file_atomically(options_.output / "verdict.json", verdict_json(clauses));
  }
  if (has_text(options_)) print(verdict_text(clauses, options_.columns()));
}

void ReportOutput::draw_plots(const std::vector<NamedChart>& charts) {
  if (options_.output.empty() || charts.empty()) return;
  std::map<std::string, std::vector<std::string>> plots_of;  // those not drawn, by the reason
  std::vector<std::string_view> names;
  for (const NamedChart& plot : charts) {
    names.push_back(plot.name);
    write_figure(plot.chart, plot.name, options_.output);
    try {
      draw_figure(plot.name, options_.output);
    } catch (const Error& error) {
      const std::string fix = error.fix().empty() ? "" : "\n  fix: " + error.fix();
      plots_of[error.what() + fix].push_back(plot.name);
    }
  }
  log_ << fmt::format("plots in {}: {}\n", options_.output.string(), fmt::join(names, ", "));
  for (const auto& [reason, plots] : plots_of)
    log_ << fmt::format("warning: no PNG and PDF of {}: {}\n", fmt::join(plots, ", "), reason);
}

}  // namespace gradsync::report
