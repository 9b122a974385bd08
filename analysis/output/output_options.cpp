#include "analysis/output/output_options.h"

#include <algorithm>

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

BoundGroup<OutputOptions> output_options(const std::string& folder_help) {
  using O = OutputOptions;
  return {"Where to",
          {
              names_option<O>("format", names_of(formats()), "text",
                              "forms of the tables; several as a list with commas",
                              [](const OptionValues& values, const std::string& name, O& options) {
                                options.formats = chosen(values, name, formats());
                              }),
              {"output", BoundValue<O>::text_value<std::filesystem::path>(&O::output, "DIR"),
               folder_help},
              {"wide", BoundValue<O>::on_off(&O::wide),
               "text on standard output with all columns and notes; without it a line fits the "
               "terminal (100 characters where there is none)"},
          }};
}

}  // namespace gradsync::report
