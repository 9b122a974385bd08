// SPDX-License-Identifier: BSD-3-Clause
#include "base/cli/options.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include <boost/program_options.hpp>
#include <fmt/format.h>

#include "base/cli/key_values.h"
#include "base/cli/program_help.h"
#include "base/cli/slurm_site.h"
#include "base/parse.h"

namespace gradsync {

namespace {

namespace po = boost::program_options;

std::string lists(const std::string& help) {
  return help + " lists the options";
}

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

Error unknown_option(const OptionTable& table, const std::string& text, const std::string& help) {
  const std::string name = bare(text), near = nearest(name, spellings(table));
  const char* dashes = text.starts_with("--") || !text.starts_with("-") ? "--" : "-";
  return Error(
      ExitCode::kUsage, fmt::format("{}{} is not an option", dashes, excerpt(name)),
      near.empty() ? lists(help) : fmt::format("did you mean --{}? ({})", near, lists(help)));
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

std::vector<po::option> split(const OptionTable& table, int argc, const char* const* argv,
                              const std::string& help) {
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
    throw unknown_option(table, error.get_option_name(), help);
  } catch (const po::invalid_command_line_syntax& error) {
    throw syntax_error(error);
  } catch (const po::error& error) {
    throw Error(ExitCode::kUsage, error.what(), lists(help));
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

void add_positional(CommandLine& line, const std::vector<std::string>& tokens,
                    const std::string& help) {
  for (const auto& token : tokens) {
    if (token.size() > 1 && token[0] == '-' && token[1] != '-')
      throw Error(ExitCode::kUsage,
                  fmt::format("{} is not an option: options have long names", excerpt(token)),
                  lists(help));
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

CommandLine parse_command_line(const OptionTable& table, int argc, const char* const* argv,
                               const std::string& help) {
  CommandLine line;
  std::set<std::string> seen;
  for (const auto& option : split(table, argc, argv, help)) {
    if (option.string_key.empty()) {
      add_positional(line, option.value, help);
      continue;
    }
    line.given.push_back(given(table, option));
    const auto& latest = line.given.back();
    if (!seen.insert(latest.name).second && !find(table, latest.name)->repeatable)
      throw Error(ExitCode::kUsage, latest.where + " is given twice", "remove one of the two");
  }
  return line;
}

namespace {

const std::string kVariablePrefix = "GRADSYNC_";

/// The programs whose options may stand under their own name, see `scoped`.
const std::array<std::string, 6> kScopes = {"calibrate", "check",  "dataset",
                                            "quantize",  "report", "sweep"};

std::optional<std::string> variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::vector<std::string> suite_variables() {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text(*entry);
    if (text.starts_with(kVariablePrefix)) names.push_back(text.substr(0, text.find('=')));
  }
  return names;
}

OptionTable with_common_options(OptionTable table) {
  for (const CommonOption& option : common_options(table, {}))
    table.push_back(option.spec);
  return table;
}

OptionValues default_values(const OptionTable& table) {
  OptionValues values;
  for (const auto& spec : table)
    values[spec.name] = {spec.default_value, "default", "default"};
  return values;
}

// A repeatable option that already has a value from this source gets a further line.
void assign(OptionValue& target, const OptionValue& value) {
  const bool further = target.source == value.source;
  target = {further ? target.value + '\n' + value.value : value.value, value.source, value.where};
}

// "report-output" for an option of gradsync-report, "lr" for one that is shared.
std::string shared_key(const OptionSpec& spec) {
  return in_scope(spec.scope, spec.name);
}

// "report-output" for GRADSYNC_REPORT_OUTPUT.
std::string key_of_variable(const std::string& variable) {
  std::string key;
  for (const char c : variable.substr(kVariablePrefix.size()))
    key += c == '_' ? '-' : static_cast<char>(std::tolower(c));
  return key;
}

// A key or variable that `table` does not have and that another program may want.
bool left_to_others(const std::string& key, const OptionTable& table, Foreign foreign) {
  const auto begins_key = [&](const std::string& scope) { return key.starts_with(scope + '-'); };
  const auto owner = std::find_if(kScopes.begin(), kScopes.end(), begins_key);
  if (owner == kScopes.end()) return foreign == Foreign::kIgnore;
  return std::none_of(table.begin(), table.end(),
                      [&](const OptionSpec& spec) { return spec.scope == *owner; });
}

[[noreturn]] void refuse_key(const KeyValue& entry, const std::vector<std::string>& keys) {
  throw Error(ExitCode::kUsage,
              fmt::format("{}: {} is not a key{}", entry.where, excerpt(entry.key),
                          did_you_mean(entry.key, keys)),
              "--print-config lists the keys");
}

// `key_of` says how the file calls an option, `may_skip` which unknown keys are no error.
void apply_file(const OptionTable& table, const std::filesystem::path& file,
                const std::string& source, std::string (*key_of)(const OptionSpec&),
                const std::function<bool(const std::string&)>& may_skip, OptionValues& values) {
  std::map<std::string, std::string> name_of;
  std::vector<std::string> keys, repeatable;
  for (const auto& spec : table) {
    keys.push_back(key_of(spec));
    name_of[keys.back()] = spec.name;
    if (spec.repeatable) repeatable.push_back(keys.back());
  }
  const auto entries = read_key_values(file);
  require_unique_keys(entries, repeatable);
  for (const auto& entry : entries) {
    if (const auto found = name_of.find(entry.key); found != name_of.end())
      assign(values.at(found->second), {entry.value, source, entry.where});
    else if (!may_skip(entry.key))
      refuse_key(entry, keys);
  }
}

void apply_site_file(const OptionTable& table, const std::filesystem::path& file, Foreign foreign,
                     OptionValues& values) {
  const auto may_skip = [&](const std::string& key) {
    return is_slurm_key(key) || left_to_others(key, table, foreign);
  };
  apply_file(table, file, "site file", shared_key, may_skip, values);
}

void apply_job_file(const OptionTable& table, const std::filesystem::path& file,
                    OptionValues& values) {
  const auto name_of = [](const OptionSpec& spec) { return spec.name; };
  const auto never = [](const std::string&) { return false; };
  apply_file(table, file, "job file", name_of, never, values);
}

void apply_environment(const OptionTable& table, OptionValues& values) {
  for (const auto& spec : table) {
    const std::string name = variable_name(shared_key(spec));
    if (const auto value = variable(name)) assign(values[spec.name], {*value, "environment", name});
  }
}

std::optional<std::string> given(const CommandLine& line, const std::string& name) {
  for (const auto& option : line.given)
    if (option.name == name) return option.value;
  return std::nullopt;
}

// Each program has a job file of its own; one without options (a command of gradsync-dataset) takes
// none from the environment.
std::optional<std::string> job_file(const CommandLine& line, const OptionTable& table) {
  if (const auto named = given(line, "config")) return named;
  if (table.empty()) return std::nullopt;
  return variable(variable_name(in_scope(scope_of(table), "config")));
}

std::filesystem::path site_file(const CommandLine& line) {
  return given(line, "site").value_or(shared_site_file().string());
}

void refuse_positional(const CommandLine& line, const std::string& positional_name) {
  if (line.positional.empty() || !positional_name.empty()) return;
  throw Error(ExitCode::kUsage,
              fmt::format("\"{}\" is not expected here", excerpt(line.positional.front())),
              "every value follows its option: --name value");
}

// Values go into run files, pages and messages, and those are UTF-8 without control characters.
void require_text(const OptionValues& values) {
  for (const auto& [name, value] : values)
    if (printable(value.value) != value.value)
      throw Error(
          ExitCode::kUsage,
          fmt::format("{}: \"{}\" {}", value.where, excerpt(value.value),
                      is_utf8(value.value) ? "has control characters" : "is not UTF-8"),
          "give it in UTF-8 without control characters; a file or folder of such a name has "
          "to be renamed (mv, convmv)");
}

// The help counts before all other questions.
Question question_of(const CommandLine& line) {
  Question asked = Question::kNone;
  for (const CommonOption& option : common_options({}, {}))
    if (option.question != Question::kNone && given(line, option.spec.name) == "true" &&
        (asked == Question::kNone || option.question < asked))
      asked = option.question;
  return asked;
}

}  // namespace

std::vector<CommonOption> common_options(const OptionTable& table, const std::string& program) {
  const auto valued = [](const char* name, const std::string& help) {
    return CommonOption{{name, "FILE", "", help, ""}};
  };
  const auto on = [](const char* name, const std::string& help,
                     Question question = Question::kNone) {
    return CommonOption{{name, "", "false", help, ""}, question};
  };
  std::vector<CommonOption> all = {
      valued("config", fmt::format("a job file with `name = value` lines ({})",
                                   variable_name(in_scope(scope_of(table), "config")))),
      valued("site",
             "the site's values, used where nothing else gives one (GRADSYNC_SITE) "
             "[~/.config/gradsync/site.cfg if it is there; /dev/null for none]"),
      on("quiet", "print warnings and errors only"),
      valued("json", "write the results as JSON; -: print them, and nothing else"),
      on("print-config", "print every value and where it came from, as a job file, and stop",
         Question::kConfig),
      on("help", "print the purpose, examples and the basic options", Question::kHelp),
      on("help-all", "print all options and the exit codes", Question::kHelpAll),
      on("help-man", fmt::format("manual page: {} --help-man | man -l -", program),
         Question::kManualPage),
      on("help-bash", fmt::format("bash completion: source <({} --help-bash)", program),
         Question::kCompletion),
      on("version", "print the version", Question::kVersion),
  };
  std::erase_if(all, [&](const CommonOption& option) {
    return std::any_of(table.begin(), table.end(),
                       [&](const OptionSpec& own) { return own.name == option.spec.name; });
  });
  return all;
}

std::string variable_name(const std::string& option) {
  std::string name = kVariablePrefix;
  for (const char c : option)
    name += c == '-' ? '_' : static_cast<char>(std::toupper(c));
  return name;
}

OptionTable scoped(const std::string& scope, OptionTable table) {
  for (auto& spec : table)
    spec.scope = scope;
  return table;
}

std::string in_scope(const std::string& scope, const std::string& name) {
  return scope.empty() ? name : scope + '-' + name;
}

std::string scope_of(const OptionTable& table) {
  for (const auto& spec : table)
    if (!spec.scope.empty()) return spec.scope;
  return {};
}

std::vector<std::string> option_names(const OptionTable& table) {
  std::vector<std::string> names;
  for (const auto& spec : table)
    names.push_back(spec.name);
  return names;
}

void reject_unknown_variables(const OptionTable& known, Foreign foreign) {
  // All but the first two are for the templates in slurm/.
  std::vector<std::string> names = {
      "GRADSYNC_CONFIG",       "GRADSYNC_SITE",       "GRADSYNC_HOME",     "GRADSYNC_DEVICE",
      "GRADSYNC_MAX_RESTARTS", "GRADSYNC_SLURM_SITE", "GRADSYNC_SUBMITTED"};
  names.push_back(variable_name(in_scope(scope_of(known), "config")));
  for (const auto& spec : known)
    names.push_back(variable_name(shared_key(spec)));
  for (const auto& name : suite_variables())
    if (std::find(names.begin(), names.end(), name) == names.end() &&
        !left_to_others(key_of_variable(name), known, foreign))
      throw Error(ExitCode::kUsage,
                  fmt::format("environment: {} is not a variable of the suite{}", name,
                              did_you_mean(name, names)),
                  "unset " + name);
}

ParsedCommandLine resolve_options(const OptionTable& table, int argc, const char* const* argv,
                                  const std::string& positional_name, Foreign foreign) {
  const CommandLine line = parse_command_line(with_common_options(table), argc, argv);
  ParsedCommandLine parsed{default_values(table), line.positional, question_of(line),
                           given(line, "quiet") == "true", given(line, "json").value_or("")};
  if (!parsed.has_values()) return parsed;
  refuse_positional(line, positional_name);

  reject_unknown_variables(table, foreign);
  if (const auto file = site_file(line); !file.empty())
    apply_site_file(table, file, foreign, parsed.values);
  if (const auto file = job_file(line, table)) apply_job_file(table, *file, parsed.values);
  apply_environment(table, parsed.values);
  for (const auto& option : line.given)
    if (const auto target = parsed.values.find(option.name); target != parsed.values.end())
      assign(target->second, {option.value, "command line", option.where});
  require_text(parsed.values);
  // Programs with an option --json of their own take it from a file or the environment, too.
  if (const auto own = parsed.values.find("json"); own != parsed.values.end())
    parsed.json = own->second.value;
  return parsed;
}

}  // namespace gradsync
