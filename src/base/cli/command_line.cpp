#include "base/cli/command_line.h"

#include <algorithm>
#include <set>

#include <boost/program_options.hpp>
#include <fmt/format.h>

namespace gradsync {

namespace {

namespace po = boost::program_options;

const std::string kHelpHint = "--help lists the options";

bool is_switch(const OptionSpec& spec) {
  return spec.value_name.empty();
}

po::options_description described(const OptionTable& table) {
  po::options_description description;
  auto add = description.add_options();
  for (const auto& spec : table) {
    const std::string letter = spec.letter ? std::string(",") + spec.letter : "";
    if (is_switch(spec)) {
      add((spec.name + letter).c_str(), new po::untyped_value(/*zero_tokens=*/true), "");
      add(("no-" + spec.name).c_str(), new po::untyped_value(true), "");
    } else {
      add((spec.name + letter).c_str(), po::value<std::string>(), "");
    }
  }
  return description;
}

std::string bare(const std::string& option) {
  const std::size_t dashes = std::min(option.find_first_not_of('-'), option.size());
  return option.substr(dashes, option.find('=') - dashes);
}

Error unknown_option(const OptionTable& table, const std::string& text) {
  const std::string name = bare(text), near = nearest(name, spellings(table));
  const char* dashes = text.starts_with("--") || !text.starts_with("-") ? "--" : "-";
  return Error(ExitCode::kUsage, fmt::format("{}{} is not an option", dashes, name),
               near.empty() ? kHelpHint : fmt::format("did you mean --{}? ({})", near, kHelpHint));
}

Error missing_value(const std::string& option) {
  return Error(ExitCode::kUsage, option + " needs a value", fmt::format("write {} VALUE", option));
}

Error syntax_error(const po::invalid_command_line_syntax& error) {
  const std::string option = "--" + bare(error.get_option_name());
  if (error.kind() == po::invalid_syntax::extra_parameter)
    return Error(
        ExitCode::kUsage, option + " is a switch and takes no value",
        fmt::format("write {} to turn it on, --no-{} to turn it off", option, bare(option)));
  return missing_value(option);
}

bool has_letters(const OptionTable& table) {
  return std::any_of(table.begin(), table.end(),
                     [](const OptionSpec& spec) { return spec.letter != 0; });
}

std::vector<po::option> split(const OptionTable& table, int argc, const char* const* argv) {
  using namespace po::command_line_style;
  const auto description = described(table);
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  std::replace(arguments.begin(), arguments.end(), std::string("-h"), std::string("--help"));
  try {
    // Without allow_guessing: Boost would take any unambiguous beginning for the option.
    return po::command_line_parser(arguments)
        .options(description)
        .style(allow_long | long_allow_adjacent | long_allow_next |
               (has_letters(table)
                    ? allow_short | allow_dash_for_short | short_allow_next | short_allow_adjacent
                    : 0))
        .run()
        .options;
  } catch (const po::unknown_option& error) {
    throw unknown_option(table, error.get_option_name());
  } catch (const po::invalid_command_line_syntax& error) {
    throw syntax_error(error);
  } catch (const po::error& error) {
    throw Error(ExitCode::kUsage, error.what(), kHelpHint);
  }
}

const OptionSpec* find(const OptionTable& table, const std::string& name) {
  for (const auto& spec : table)
    if (spec.name == name) return &spec;
  return nullptr;
}

CommandLine::Given given(const OptionTable& table, const po::option& option) {
  const OptionSpec* spec = find(table, option.string_key);
  const std::string where = "--" + option.string_key;
  if (spec == nullptr) return {option.string_key.substr(3), "false", where};
  // Boost takes the next word whatever it is; `--output --quick` forgot the file.
  const auto& words = option.original_tokens;
  if (words.size() == 2 && words[1].starts_with("--")) throw missing_value(where);
  return {spec->name, is_switch(*spec) ? "true" : option.value.at(0), where};
}

void add_positional(CommandLine& line, const std::vector<std::string>& tokens) {
  for (const auto& token : tokens) {
    if (token.size() > 1 && token[0] == '-' && token[1] != '-')
      throw Error(ExitCode::kUsage,
                  fmt::format("{} is not an option: options have long names", token), kHelpHint);
    line.positional.push_back(token);
  }
}

}  // namespace

std::vector<std::string> spellings(const OptionTable& table) {
  std::vector<std::string> names = option_names(table);
  for (const auto& spec : table)
    if (is_switch(spec)) names.push_back("no-" + spec.name);
  return names;
}

CommandLine parse_command_line(const OptionTable& table, int argc, const char* const* argv) {
  CommandLine line;
  std::set<std::string> seen;
  for (const auto& option : split(table, argc, argv)) {
    if (option.string_key.empty()) {
      add_positional(line, option.value);
      continue;
    }
    line.given.push_back(given(table, option));
    const auto& latest = line.given.back();
    if (!seen.insert(latest.name).second && !find(table, latest.name)->repeatable)
      throw Error(ExitCode::kUsage, latest.where + " is given twice", "remove one of the two");
  }
  return line;
}

}  // namespace gradsync
