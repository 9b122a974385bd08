#include "analysis/output/output_options.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "analysis/output/named_choice.h"

namespace gradsync::report {

std::vector<std::string> chosen_names(const OptionValues& values, const std::string& option,
                                      const std::vector<std::string>& known) {
  std::vector<std::string> named;
  for (const std::string& list : list_option(values, option))
    for (const std::string& name : split_list(list, ','))
      named.push_back(name);
  const auto is_named = [&](const std::string& name) {
    return std::find(named.begin(), named.end(), name) != named.end();
  };

  std::vector<std::string> choices = known;
  choices.emplace_back("all");
  for (const std::string& name : named)
    if (std::find(choices.begin(), choices.end(), name) == choices.end())
      throw option_error(values, option,
                         fmt::format("'{}' is none of {}{}", name, fmt::join(choices, ", "),
                                     did_you_mean(name, choices)));
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
          places.push_back(i);
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
        if (std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
  for (const std::string& name : names)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw Error(
          ExitCode::kUsage,
          fmt::format("--columns: no table has a column '{}'{}", name, did_you_mean(name, known)),
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

}  // namespace gradsync::report
