#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/cli/program_help.h"

/// What texts about options have in common: --help, manual pages and completion.
namespace gradsync {

/// Codes and their meanings, rising.
const std::vector<std::pair<int, std::string>>& exit_codes();

/// An option that every program has: no value of the program, and no key of files.
struct CommonOption {
  OptionSpec spec;
  Question question = Question::kNone;  ///< what it requests, if anything

  /// As it is written: "-h, --help", "--site FILE".
  std::string form() const;
};

/// All of them, without those that the table has itself. The reader and the texts use this list.
std::vector<CommonOption> common_options(const OptionTable& table);

/// "-b, --minbytes SIZE", "--[no-]augment".
std::string option_form(const OptionSpec& spec);

/// `text` and the default in brackets.
std::string with_default(const OptionSpec& spec, const std::string& text);

/// The help with the default. An option of another scope than the table's says its variable.
std::string whole_help(const OptionSpec& spec, const std::string& scope);

}  // namespace gradsync
