#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "support/key_values.h"
#include "support/options.h"
#include "support/table.h"

namespace gradsync {

namespace {

constexpr std::size_t kColumns = 100, kIndent = 2, kHelpColumn = 34;

constexpr std::array<std::pair<int, const char*>, 14> kExitCodes = {
    {{0, "fine"},
     {1, "a verification or a threshold failed"},
     {64, "usage or configuration"},
     {65, "bad data"},
     {66, "input missing"},
     {69, "wrong environment (launch, binding, versions)"},
     {70, "a defect in gradsync"},
     {73, "cannot create an output"},
     {74, "input/output"},
     {75, "stopped early, resume me"},
     {80, "numbers (NaN, replicas differ)"},
     {81, "out of memory"},
     {86, "hang"},
     {87, "ranks disagree"}}};

std::string precedence_help(const std::string& scope) {
  const std::string names =
      scope.empty() ? "Names are the same everywhere; in files they stand as `name = value`."
                    : fmt::format(
                          "In files they stand as `name = value`, in a site file with "
                          "{}- before the name.",
                          scope);
  return fmt::format(
      "Precedence: command line > environment {} > job file (--config) > site file (--site) > "
      "default. {}",
      variable_name(in_scope(scope, "<name>")), names);
}

// `left`, and `text` beside it from column kHelpColumn on; below it if `left` is too wide.
std::string beside(const std::string& left, const std::string& text) {
  std::string block = std::string(kIndent, ' ') + left;
  std::size_t used = display_width(block);
  if (used + 2 > kHelpColumn) {
    block += '\n';
    used = 0;
  }
  for (const auto& line : wrapped(text, kColumns - kHelpColumn)) {
    block += std::string(kHelpColumn - used, ' ') + line + '\n';
    used = 0;
  }
  return block;
}

// `scope` is the table's: an option of the trainer's meaning says its variable there.
std::string option_help(const OptionSpec& spec, const std::string& scope) {
  const bool is_switch = spec.value_name.empty();
  const std::string letter = spec.letter ? fmt::format("-{}, ", spec.letter) : "";
  const std::string left =
      letter +
      (is_switch ? "--[no-]" + spec.name : fmt::format("--{} {}", spec.name, spec.value_name));
  const std::string shown =
      is_switch ? (spec.default_value == "true" ? "on" : "off") : spec.default_value;
  const bool shared = spec.scope != scope;
  const std::string text =
      shared ? fmt::format("{} ({})", spec.help, variable_name(spec.name)) : spec.help;
  return beside(left, shown.empty() ? text : fmt::format("{} [{}]", text, shown));
}

std::string common_help(const std::string& scope) {
  return "\nCommon\n" +
         beside("--config FILE", fmt::format("a job file with `name = value` lines ({})",
                                             variable_name(in_scope(scope, "config")))) +
         beside("--site FILE",
                "the site's values, used where nothing else gives one (GRADSYNC_SITE) "
                "[~/.config/gradsync/site.cfg if it is there; /dev/null for none]") +
         beside("--print-config",
                "print every value and where it came from, as a job file, and stop") +
         beside("-h, --help", "print this text") + beside("--version", "print the version");
}

std::string exit_code_help() {
  std::string text = "\nExit codes\n";
  for (const auto& [code, meaning] : kExitCodes)
    text += fmt::format("  {:2}  {}\n", code, meaning);
  return text;
}

std::string indented(const std::string& text) {
  std::string block;
  for (const auto& line : split_list(text, '\n'))
    if (!line.empty()) block += "  " + line + '\n';
  return block;
}

std::string source_note(const OptionValue& value) {
  const bool named =
      value.source == "job file" || value.source == "site file" || value.source == "environment";
  return named ? fmt::format("{} {}", value.source, value.where) : value.source;
}

}  // namespace

std::string help_text(const std::string& usage, const std::string& examples,
                      const OptionTable& table) {
  std::string text = "Usage: " + usage + '\n';
  if (!examples.empty()) text += "\nExamples\n" + indented(examples);
  std::string group;
  for (const auto& spec : table) {
    if (spec.group != group) text += '\n' + spec.group + '\n';
    group = spec.group;
    text += option_help(spec, scope_of(table));
  }
  text += common_help(scope_of(table)) + '\n';
  for (const auto& line : wrapped(precedence_help(scope_of(table)), kColumns))
    text += line + '\n';
  return text + exit_code_help();
}

std::string config_text(const OptionTable& table, const OptionValues& values) {
  std::size_t width = 0;
  for (const auto& name : option_names(table))
    width = std::max(width, name.size());
  std::string text;
  for (const auto& spec : table) {
    const auto& value = values.at(spec.name);
    const auto lines = spec.repeatable ? list_option(values, spec.name) : std::vector{value.value};
    for (const auto& line : lines)
      text += fmt::format("{} = {}  # {}\n", padded(spec.name, width, true),
                          quoted_where_needed(line), source_note(value));
  }
  return text;
}

}  // namespace gradsync
