#include <fmt/format.h>

#include "base/cli/key_values.h"
#include "base/cli/option_texts.h"
#include "base/parse.h"
#include "base/version.h"

namespace gradsync {

namespace {

// As roff reads it: no character of a text is a command.
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

std::string entry(const std::string& head, const std::string& text) {
  return fmt::format(".TP\n.B {}\n{}\n", as_roff(head), as_roff(text));
}

std::string verbatim(const std::string& text) {
  return fmt::format(".nf\n{}\n.fi\n", as_roff(text));
}

std::string options_section(const OptionTable& table) {
  std::string roff = ".SH OPTIONS\n", group;
  for (const OptionSpec& spec : table) {
    if (spec.group != group) roff += fmt::format(".SS {}\n", as_roff(spec.group));
    group = spec.group;
    roff += entry(option_form(spec), whole_help(spec, scope_of(table)));
  }
  roff += ".SS Common\n";
  for (const CommonOption& option : common_options(table))
    roff += entry(option.form(), option.spec.help);
  return roff;
}

// "gradsync-report-compare" for a command.
std::string page_name(std::string name) {
  if (const auto space = name.find(' '); space != std::string::npos) name[space] = '-';
  return name;
}

}  // namespace

std::string manual_page(const ProgramHelp& help, const OptionTable& table) {
  std::string roff = fmt::format(".TH {} 1 \"\" \"{}\"\n", page_name(help.name), version_number());
  roff +=
      fmt::format(".SH NAME\n{} \\- {}\n", as_roff(page_name(help.name)), as_roff(help.purpose));
  roff += ".SH SYNOPSIS\n" + verbatim(help.usage);
  if (!help.details.empty()) {
    roff += ".SH DESCRIPTION\n";
    for (const std::string& paragraph : split_list(help.details, '\n'))
      roff += as_roff(paragraph) + "\n.PP\n";
  }
  roff += ".SH EXAMPLES\n" + verbatim(help.examples) + options_section(table);
  if (!help.notes.empty()) roff += ".SH NOTES\n" + verbatim(help.notes);
  roff += ".SH ENVIRONMENT\n" +
          entry(variable_name(in_scope(scope_of(table), "<name>")),
                "the value of the option of that name") +
          ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : exit_codes())
    roff += entry(std::to_string(code), meaning);
  return roff;
}

}  // namespace gradsync
