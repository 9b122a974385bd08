#include "support/options.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "support/command_line.h"
#include "support/key_values.h"

namespace gradsync {

namespace {

const std::string kVariablePrefix = "GRADSYNC_";

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
  table.push_back({"config", "FILE", "", "", ""});
  table.push_back({"site", "FILE", "", "", ""});
  table.push_back({"print-config", "", "false", "", ""});
  table.push_back({"help", "", "false", "", ""});
  table.push_back({"version", "", "false", "", ""});
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

void apply_file(const OptionTable& table, const std::filesystem::path& file,
                const std::string& source, bool reject_unknown, OptionValues& values) {
  const auto entries = read_key_values(file);
  std::vector<std::string> repeatable;
  for (const auto& spec : table)
    if (spec.repeatable) repeatable.push_back(spec.name);
  require_unique_keys(entries, repeatable);
  for (const auto& entry : entries) {
    const auto target = values.find(entry.key);
    if (target != values.end()) {
      assign(target->second, {entry.value, source, entry.where});
    } else if (reject_unknown) {
      throw Error(ExitCode::kUsage,
                  fmt::format("{}: {} is not a key{}", entry.where, entry.key,
                              did_you_mean(entry.key, option_names(table))),
                  "--print-config lists the keys");
    }
  }
}

void apply_environment(const OptionTable& table, OptionValues& values) {
  for (const auto& spec : table) {
    const std::string name = variable_name(spec.name);
    if (const auto value = variable(name)) assign(values[spec.name], {*value, "environment", name});
  }
}

std::optional<std::string> given(const CommandLine& line, const std::string& name) {
  for (const auto& option : line.given)
    if (option.name == name) return option.value;
  return std::nullopt;
}

std::optional<std::string> default_site_file() {
  std::optional<std::string> folder = variable("XDG_CONFIG_HOME");
  if (!folder)
    if (const auto home = variable("HOME")) folder = *home + "/.config";
  if (!folder) return std::nullopt;
  const std::string file = *folder + "/gradsync/site.cfg";
  std::error_code ignored;
  return std::filesystem::exists(file, ignored) ? std::optional(file) : std::nullopt;
}

// The file named on the command line, else by the variable.
std::optional<std::string> named_file(const CommandLine& line, const std::string& option) {
  const auto named = given(line, option);
  return named ? named : variable(variable_name(option));
}

void refuse_positional(const CommandLine& line, const std::string& positional_name) {
  if (line.positional.empty() || !positional_name.empty()) return;
  throw Error(ExitCode::kUsage, fmt::format("\"{}\" is not expected here", line.positional.front()),
              "every value follows its option: --name value");
}

bool is_set(const CommandLine& line, const std::string& name) {
  return given(line, name) == "true";
}

}  // namespace

std::string variable_name(const std::string& option) {
  std::string name = kVariablePrefix;
  for (const char c : option)
    name += c == '-' ? '_' : static_cast<char>(std::toupper(c));
  return name;
}

std::vector<std::string> option_names(const OptionTable& table) {
  std::vector<std::string> names;
  for (const auto& spec : table)
    names.push_back(spec.name);
  return names;
}

void reject_unknown_variables(const OptionTable& known) {
  std::vector<std::string> names = {"GRADSYNC_CONFIG", "GRADSYNC_SITE", "GRADSYNC_MAX_RESTARTS"};
  for (const auto& spec : known)
    names.push_back(variable_name(spec.name));
  for (const auto& name : suite_variables())
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw Error(ExitCode::kUsage,
                  fmt::format("environment: {} is not a variable of the suite{}", name,
                              did_you_mean(name, names)),
                  "unset " + name);
}

ParsedCommandLine resolve_options(const OptionTable& table, int argc, const char* const* argv,
                                  const std::string& positional_name, Foreign foreign) {
  const CommandLine line = parse_command_line(with_common_options(table), argc, argv);
  ParsedCommandLine parsed{default_values(table), line.positional, is_set(line, "help"),
                           is_set(line, "version"), is_set(line, "print-config")};
  if (parsed.help || parsed.version) return parsed;
  refuse_positional(line, positional_name);

  const bool reject = foreign == Foreign::kReject;
  if (reject) reject_unknown_variables(table);
  const auto site = named_file(line, "site");
  if (const auto file = site ? site : default_site_file())
    apply_file(table, *file, "site file", reject, parsed.values);
  if (const auto file = named_file(line, "config"))
    apply_file(table, *file, "job file", true, parsed.values);
  apply_environment(table, parsed.values);
  for (const auto& option : line.given)
    if (const auto target = parsed.values.find(option.name); target != parsed.values.end())
      assign(target->second, {option.value, "command line", option.where});
  return parsed;
}

}  // namespace gradsync
