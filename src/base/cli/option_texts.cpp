#include "base/cli/option_texts.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "base/cli/key_values.h"
#include "base/table.h"
#include "base/version.h"

namespace gradsync {

namespace {

constexpr std::size_t kIndent = 2;

/// How wide a text is, and where the explanations begin.
struct Layout {
  std::size_t columns, help_column;
  bool airy;  ///< an empty line before each group
};
constexpr Layout kShort = {80, 26, false}, kFull = {100, 34, true};

std::string precedence_help(const std::string& scope) {
  const std::string names =
      scope.empty() ? "Names are the same everywhere; in files they are written as `name = value`."
                    : fmt::format(
                          "In files they are written as `name = value`, in a site file with {}- "
                          "before the name.",
                          scope);
  return fmt::format(
      "Precedence: command line > environment {} > job file (--config) > site file (--site) > "
      "default. {}",
      variable_name(in_scope(scope, "<name>")), names);
}

// `left`, and `text` beside it from the help column on; below it if `left` is too wide.
std::string beside(const std::string& left, const std::string& text, const Layout& layout) {
  std::string block = std::string(kIndent, ' ') + left;
  std::size_t used = display_width(block);
  if (used + 2 > layout.help_column) {
    block += '\n';
    used = 0;
  }
  for (const auto& line : wrapped(text, layout.columns - layout.help_column)) {
    block += std::string(layout.help_column - used, ' ') + line + '\n';
    used = 0;
  }
  return block;
}

std::string indented(const std::vector<std::string>& lines) {
  std::string block;
  for (const auto& line : lines)
    if (!line.empty()) block += "  " + line + '\n';
  return block;
}

std::string paragraphs(const std::string& text, const Layout& layout) {
  std::string block;
  for (const auto& paragraph : split_list(text, '\n'))
    for (const auto& line : wrapped(paragraph, layout.columns))
      block += line + '\n';
  return block;
}

std::string opening(const ProgramHelp& help, const Layout& layout, std::size_t most_examples) {
  std::vector<std::string> examples = split_list(help.examples, '\n');
  examples.resize(std::min(examples.size(), most_examples));
  return paragraphs(help.purpose, layout) + "\nUsage: " + help.usage + "\n\nExamples\n" +
         indented(examples);
}

// The options under their groups; `text_of` is what stands beside one.
std::string grouped(const OptionTable& table, const Layout& layout,
                    std::string (*text_of)(const OptionSpec& spec, const std::string& scope)) {
  const std::string scope = scope_of(table);
  std::string text, group;
  for (const auto& spec : table) {
    if (spec.group != group) text += (layout.airy || group.empty() ? "\n" : "") + spec.group + '\n';
    group = spec.group;
    text += beside(option_form(spec), text_of(spec, scope), layout);
  }
  return text;
}

std::string first_clause(const OptionSpec& spec, const std::string&) {
  return with_default(spec, spec.help.substr(0, spec.help.find("; ")));
}

OptionTable basic_options(const ProgramHelp& help, const OptionTable& table) {
  if (help.basic.empty()) return table;
  OptionTable chosen;
  for (const auto& spec : table)
    if (std::find(help.basic.begin(), help.basic.end(), spec.name) != help.basic.end())
      chosen.push_back(spec);
  return chosen;
}

std::string common_help(const OptionTable& table) {
  std::string text = "\nCommon\n";
  for (const CommonOption& option : common_options(table))
    text += beside(option.form(), option.spec.help, kFull);
  return text;
}

std::string exit_code_help() {
  std::string text = "\nExit codes\n";
  for (const auto& [code, meaning] : exit_codes())
    text += fmt::format("  {:2}  {}\n", code, meaning);
  return text;
}

std::string source_note(const OptionValue& value) {
  const bool named =
      value.source == "job file" || value.source == "site file" || value.source == "environment";
  return named ? fmt::format("{} {}", value.source, value.where) : value.source;
}

}  // namespace

const std::vector<std::pair<int, std::string>>& exit_codes() {
  static const std::vector<std::pair<int, std::string>> all = {
      {0, "success"},
      {1, "a verification or a threshold failed"},
      {64, "usage or configuration"},
      {65, "invalid data"},
      {66, "input missing"},
      {69, "wrong environment (launch, binding, versions)"},
      {70, "a defect in gradsync"},
      {73, "cannot create an output"},
      {74, "input/output error"},
      {75, "stopped early; the same command resumes"},
      {80, "numerical error (NaN, replicas differ)"},
      {81, "out of memory"},
      {86, "hang"},
      {87, "ranks disagree"}};
  return all;
}

std::string CommonOption::form() const {
  const std::string letter = spec.name == "help" ? "-h, " : "";
  return letter + "--" + spec.name + (spec.value_name.empty() ? "" : ' ' + spec.value_name);
}

std::vector<CommonOption> common_options(const OptionTable& table) {
  const auto valued = [](const char* name, const std::string& help) {
    return CommonOption{{name, "FILE", "", help, ""}};
  };
  const auto on = [](const char* name, const char* help, Question question = Question::kNone) {
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
      on("help-man", "print the manual page: gradsync-train --help-man | man -l -",
         Question::kManualPage),
      on("help-bash", "print the completion for bash: source <(gradsync-train --help-bash)",
         Question::kCompletion),
      on("version", "print the version", Question::kVersion),
  };
  std::erase_if(all, [&](const CommonOption& option) {
    return std::any_of(table.begin(), table.end(),
                       [&](const OptionSpec& own) { return own.name == option.spec.name; });
  });
  return all;
}

std::string option_form(const OptionSpec& spec) {
  const std::string letter = spec.letter ? fmt::format("-{}, ", spec.letter) : "";
  if (spec.value_name.empty()) return letter + "--[no-]" + spec.name;
  return fmt::format("{}--{} {}", letter, spec.name, spec.value_name);
}

std::string with_default(const OptionSpec& spec, const std::string& text) {
  const bool is_switch = spec.value_name.empty();
  const std::string shown =
      is_switch ? (spec.default_value == "true" ? "on" : "off") : spec.default_value;
  return shown.empty() ? text : fmt::format("{} [{}]", text, shown);
}

std::string whole_help(const OptionSpec& spec, const std::string& scope) {
  const bool shared = spec.scope != scope;
  return with_default(
      spec, shared ? fmt::format("{} ({})", spec.help, variable_name(spec.name)) : spec.help);
}

std::string help_text(const ProgramHelp& help, const OptionTable& table) {
  return opening(help, kShort, 3) + grouped(basic_options(help, table), kShort, first_clause) +
         '\n' +
         paragraphs(fmt::format("--help-all prints {} and the exit codes; --quiet, --json FILE "
                                "and --print-config work in every program.",
                                help.basic.empty() ? "the details of each option"
                                                   : fmt::format("all {} options", table.size())),
                    kShort);
}

std::string full_help_text(const ProgramHelp& help, const OptionTable& table) {
  const std::string details = help.details.empty() ? "" : '\n' + paragraphs(help.details, kFull);
  const std::string scope = scope_of(table);
  return opening(help, kFull, SIZE_MAX) + details + grouped(table, kFull, whole_help) +
         common_help(table) + '\n' + paragraphs(precedence_help(scope), kFull) + exit_code_help() +
         (help.notes.empty() ? "" : '\n' + help.notes);
}

std::optional<std::string> answer(const ProgramHelp& help, const OptionTable& table,
                                  const ParsedCommandLine& given) {
  switch (given.question) {
    case Question::kNone:
      return std::nullopt;
    case Question::kHelp:
      return help_text(help, table);
    case Question::kHelpAll:
      return full_help_text(help, table);
    case Question::kManualPage:
      return manual_page(help, table);
    case Question::kCompletion:
      return bash_completion(help, table);
    case Question::kVersion:
      return version_text(help.name.substr(0, help.name.find(' ')));
    case Question::kConfig:
      return config_text(table, given.values);
  }
  return std::nullopt;
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
