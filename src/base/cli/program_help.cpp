// SPDX-License-Identifier: BSD-3-Clause
#include "base/cli/program_help.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/cli/key_values.h"
#include "base/cli/options.h"
#include "base/parse.h"
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
constexpr Layout kShort = {80, 26, false}, kFull = {100, 34, true}, kManual = {72, 26, true};

// "-b, --minbytes SIZE", "--[no-]augment".
std::string option_form(const OptionSpec& spec) {
  const std::string letter = spec.letter ? fmt::format("-{}, ", spec.letter) : "";
  if (spec.value_name.empty()) return letter + "--[no-]" + spec.name;
  return fmt::format("{}--{} {}", letter, spec.name, spec.value_name);
}

// `text` and the default in brackets.
std::string with_default(const OptionSpec& spec, const std::string& text) {
  const bool is_switch = spec.value_name.empty();
  const std::string shown =
      is_switch ? (spec.default_value == "true" ? "on" : "off") : spec.default_value;
  return shown.empty() ? text : fmt::format("{} [{}]", text, shown);
}

// The help with the default. An option of another scope than the table's says its variable.
std::string whole_help(const OptionSpec& spec, const std::string& scope) {
  const bool shared = spec.scope != scope;
  return with_default(
      spec, shared ? fmt::format("{} ({})", spec.help, variable_name(spec.name)) : spec.help);
}

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

std::string common_help(const ProgramHelp& help, const OptionTable& table, const Layout& layout) {
  std::string text = "\nCommon\n";
  for (const auto& [spec, question] : common_options(table, help.name)) {
    const std::string value = spec.value_name.empty() ? "" : ' ' + spec.value_name;
    text += beside((spec.name == "help" ? "-h, --" : "--") + spec.name + value, spec.help, layout);
  }
  return text;
}

std::string exit_code_help(const ProgramHelp& help) {
  constexpr std::array kOfSome = {1, 75, 80, 86, 87};
  constexpr std::pair<int, const char*> kMeanings[] = {
      {0, "success"},
      {1, "a verification or a threshold failed"},
      {64, "usage or configuration"},
      {65, "invalid data"},
      {66, "input missing"},
      {69, "wrong environment (launch, binding, versions)"},
      {70, "internal error of gradsync"},
      {73, "cannot create an output"},
      {74, "input/output error"},
      {75, "stopped early, can be resumed"},
      {80, "numerical error (NaN, replicas differ)"},
      {81, "out of memory"},
      {86, "hang"},
      {87, "ranks disagree"}};
  std::string text;
  for (const auto& [code, meaning] : kMeanings) {
    const auto code_of_some = std::find(kOfSome.begin(), kOfSome.end(), code);
    if (code_of_some == kOfSome.end() ||
        std::ranges::count(help.codes, static_cast<ExitCode>(code)) > 0)
      text += fmt::format("  {:2}  {}\n", code, meaning);
  }
  return text;
}

std::string source_note(const OptionValue& value) {
  const bool named =
      value.source == "job file" || value.source == "site file" || value.source == "environment";
  return named ? fmt::format("{} {}", value.source, value.where) : value.source;
}

}  // namespace

std::string help_text(const ProgramHelp& help, const OptionTable& table) {
  return opening(help, kShort, 3) + grouped(basic_options(help, table), kShort, first_clause) +
         '\n' + (help.listing.empty() ? "" : help.listing + '\n') +
         paragraphs(fmt::format("--help-all prints {} and the exit codes; --quiet, --json FILE, "
                                "--print-config (not in gradsync-audit) work in every program.",
                                help.basic.empty() ? "the details of each option"
                                                   : fmt::format("all {} options", table.size())),
                    kShort);
}

std::string full_help_text(const ProgramHelp& help, const OptionTable& table) {
  const std::string details = help.details.empty() ? "" : '\n' + paragraphs(help.details, kFull);
  const std::string scope = scope_of(table);
  return opening(help, kFull, SIZE_MAX) + details + grouped(table, kFull, whole_help) +
         common_help(help, table, kFull) + '\n' +
         (help.listing.empty() ? "" : help.listing + '\n') +
         paragraphs(precedence_help(scope), kFull) + "\nExit codes\n" + exit_code_help(help) +
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

namespace {

// Text for roff, in which no character is a command.
std::string as_roff(const std::string& text) {
  std::string roff;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool line_begins = at == 0 || text[at - 1] == '\n';
    if (line_begins && (text[at] == '.' || text[at] == '\'')) roff += "\\&";
    if (text[at] == '\\')
      roff += "\\e";
    else if (text[at] == '-')
      roff += "\\-";
    else
      roff += text[at];
  }
  return roff;
}

// "gradsync-report-compare" for a command.
std::string page_name(std::string name) {
  if (const auto space = name.find(' '); space != std::string::npos) name[space] = '-';
  return name;
}

}  // namespace

std::string manual_page(const ProgramHelp& help, const OptionTable& table) {
  const std::string name = page_name(help.name);
  const std::pair<const char*, std::string> sections[] = {
      {"SYNOPSIS", help.usage},
      {"DESCRIPTION", paragraphs(help.details, kManual)},
      {"EXAMPLES", help.examples},
      {"OPTIONS", grouped(table, kManual, whole_help) + common_help(help, table, kManual)},
      {"NOTES", help.listing + help.notes},
      {"ENVIRONMENT", paragraphs(precedence_help(scope_of(table)), kManual)},
      {"EXIT STATUS", exit_code_help(help)}};
  std::string roff = fmt::format(".TH {} 1 \"\" \"{}\"\n.SH NAME\n{} \\- {}\n", name,
                                 version_number(), as_roff(name), as_roff(help.purpose));
  for (const auto& [head, text] : sections)
    if (!text.empty()) roff += fmt::format(".SH {}\n.nf\n{}\n.fi\n", head, as_roff(text));
  return roff;
}

namespace {

std::vector<std::string> completion_words(const OptionTable& table) {
  std::vector<std::string> words = spellings(table);
  for (const CommonOption& option : common_options(table, {}))
    words.push_back(option.spec.name);
  for (std::string& word : words)
    word.insert(0, "--");
  return words;
}

std::string options_case(const std::string& command, const OptionTable& table) {
  return fmt::format("    {}) options=\"{}\" ;;\n", command,
                     fmt::join(completion_words(table), " "));
}

// The words that values can be; a value that is none of a list is completed as a file name.
std::string value_cases(const OptionTable& table) {
  std::string text;
  for (const OptionSpec& spec : table)
    if (!spec.choices.empty())
      text += fmt::format("    --{}) words=\"{}\" ;;\n", spec.name, fmt::join(spec.choices, " "));
  return text;
}

}  // namespace

std::string bash_completion(const ProgramHelp& help, const OptionTable& table) {
  std::string function = '_' + help.name;
  std::replace_if(
      function.begin(), function.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  std::string commands, options, values = value_cases(table);
  for (const ProgramHelp::Command& command : help.commands) {
    commands += command.name + ' ';
    options += options_case(command.name, command.options);
    values += value_cases(command.options);
  }
  return fmt::format(
      R"(# Completion for bash: source it, or install it as share/bash-completion/completions/{0}.
{1}() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} words="" options=""
  # --name=value: bash splits the word at the sign.
  [[ $previous != "=" ]] || previous=${{COMP_WORDS[COMP_CWORD - 2]}}
  [[ $current != "=" ]] || current=""
  case $previous in
{2}    *) ;;
  esac
  case ${{COMP_WORDS[1]}} in
{3}  esac
  if [[ -n $words ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  elif [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
  else
    ((COMP_CWORD > 1)) || mapfile -t COMPREPLY < <(compgen -W "{4}" -- "$current")
    mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < <(compgen -f -- "$current")
  fi
}}
complete -o filenames -F {1} {0}
)",
      help.name, function, values, options + options_case("*", table), commands);
}

}  // namespace gradsync
