#include <algorithm>
#include <cctype>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/cli/command_line.h"
#include "base/cli/option_texts.h"

namespace gradsync {

namespace {

std::vector<std::string> completion_words(const OptionTable& table) {
  std::vector<std::string> words = spellings(table);
  for (const CommonOption& option : common_options(table))
    words.push_back(option.spec.name);
  for (std::string& word : words)
    word.insert(0, "--");
  return words;
}

// The words that a value can be; a value that is none of a list is completed as a file name.
std::string cases_of_values(const OptionTable& table) {
  std::string text;
  for (const OptionSpec& spec : table)
    if (!spec.choices.empty())
      text += fmt::format("    --{}) words=\"{}\" ;;\n", spec.name, fmt::join(spec.choices, " "));
  return text;
}

std::string cases_of_options(const OptionTable& table, const std::string& indent) {
  return fmt::format("{}options=\"{}\"\n", indent, fmt::join(completion_words(table), " "));
}

OptionTable all_options(const ProgramHelp& help, OptionTable table) {
  for (const ProgramHelp::Command& command : help.commands)
    for (const OptionSpec& spec : command.options)
      if (std::none_of(table.begin(), table.end(),
                       [&](const OptionSpec& known) { return known.name == spec.name; }))
        table.push_back(spec);
  return table;
}

std::string function_name(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return '_' + name;
}

}  // namespace

std::string bash_completion(const ProgramHelp& help, const OptionTable& table) {
  const std::string function = function_name(help.name);
  std::string commands, command_cases;
  for (const ProgramHelp::Command& command : help.commands) {
    commands += (commands.empty() ? "" : " ") + command.name;
    command_cases += fmt::format("    {})\n{}      ;;\n", command.name,
                                 cases_of_options(command.options, "      "));
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
{3}    *)
{4}      ;;
  esac
  if [[ -n $words ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  elif [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
  else
    ((COMP_CWORD > 1)) || mapfile -t COMPREPLY < <(compgen -W "{5}" -- "$current")
    mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < <(compgen -f -- "$current")
  fi
}}
complete -o filenames -F {1} {0}
)",
      help.name, function, cases_of_values(all_options(help, table)), command_cases,
      cases_of_options(table, "      "), commands);
}

}  // namespace gradsync
