#include "support/command_line.h"

#include <algorithm>
#include <optional>
#include <set>

#include <fmt/format.h>

namespace gradsync {

namespace {

const std::string kHelpHint = "--help lists the options";

bool is_switch(const OptionSpec& spec) {
  return spec.value_name.empty();
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

Error surplus_value(const std::string& name) {
  return Error(ExitCode::kUsage, fmt::format("--{} is a switch and takes no value", name),
               fmt::format("write --{} to turn it on, --no-{} to turn it off", name, name));
}

const OptionSpec* find(const OptionTable& table, const std::string& name) {
  for (const auto& spec : table)
    if (spec.name == name) return &spec;
  return nullptr;
}

/// The words after the program's name that no option has taken yet.
class Words {
 public:
  Words(int argc, const char* const* argv) : words_(argv + std::min(argc, 1), argv + argc) {}

  bool empty() const { return next_ == words_.size(); }
  const std::string& front() const { return words_[next_]; }
  std::string take() { return words_[next_++]; }

 private:
  std::vector<std::string> words_;
  std::size_t next_ = 0;
};

/// An option as written: its long name, and the value in the same word.
struct Written {
  std::string word, name;
  std::optional<std::string> attached;
};

bool has_letters(const OptionTable& table) {
  return std::any_of(table.begin(), table.end(),
                     [](const OptionSpec& spec) { return spec.letter != 0; });
}

Written long_option(const std::string& word) {
  const std::size_t sign = word.find('=');
  if (sign == std::string::npos) return {word, word.substr(2), {}};
  return {word, word.substr(2, sign - 2), word.substr(sign + 1)};
}

const OptionSpec* find_letter(const OptionTable& table, const std::string& word) {
  for (const auto& spec : table)
    if (spec.letter != 0 && word.size() > 1 && word[0] == '-' && word[1] == spec.letter)
      return &spec;
  return nullptr;
}

Written letter_option(const OptionTable& table, const std::string& word) {
  const OptionSpec* spec = find_letter(table, word);
  if (spec == nullptr) throw unknown_option(table, word.substr(0, 2));
  return {word, spec->name, word.size() > 2 ? std::optional(word.substr(2)) : std::nullopt};
}

bool is_option(const OptionTable& table, const std::string& word) {
  return word.starts_with("--") || word == "-h" ||
         (word.size() > 1 && word[0] == '-' && has_letters(table));
}

Written written(const OptionTable& table, const std::string& word) {
  if (word == "-h") return {word, "help", {}};
  return word[1] == '-' ? long_option(word) : letter_option(table, word);
}

/// In `--output --quick` the file was forgotten; `--gap -1` has its value.
bool begins_an_option(const OptionTable& table, const std::string& word) {
  return word.starts_with("--") || word == "-h" ||
         (word.size() == 2 && find_letter(table, word) != nullptr);
}

std::string value_of(const OptionTable& table, const Written& option, Words& rest) {
  if (option.attached && !option.attached->empty()) return *option.attached;
  if (option.attached || rest.empty() || begins_an_option(table, rest.front()))
    throw missing_value("--" + option.name);
  return rest.take();
}

CommandLine::Given given(const OptionTable& table, const Written& option, Words& rest) {
  const OptionSpec* spec = find(table, option.name);
  const std::string where = "--" + option.name;
  if (spec != nullptr && !is_switch(*spec))
    return {option.name, value_of(table, option, rest), where};
  const bool off = spec == nullptr && option.name.starts_with("no-");
  if (off) spec = find(table, option.name.substr(3));
  if (spec == nullptr || !is_switch(*spec)) throw unknown_option(table, option.word);
  if (option.attached) throw surplus_value(spec->name);
  return {spec->name, off ? "false" : "true", where};
}

void add_positional(CommandLine& line, const std::string& word) {
  if (word.size() > 1 && word[0] == '-' && word[1] != '-')
    throw Error(ExitCode::kUsage, fmt::format("{} is not an option: options have long names", word),
                kHelpHint);
  line.positional.push_back(word);
}

void refuse_second(const OptionTable& table, const CommandLine::Given& latest,
                   std::set<std::string>& seen) {
  if (!seen.insert(latest.name).second && !find(table, latest.name)->repeatable)
    throw Error(ExitCode::kUsage, latest.where + " is given twice", "remove one of the two");
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
  Words words(argc, argv);
  bool options_ended = false;
  while (!words.empty()) {
    const std::string word = words.take();
    if (options_ended || !is_option(table, word)) {
      add_positional(line, word);
    } else if (word == "--") {
      options_ended = true;
    } else {
      line.given.push_back(given(table, written(table, word), words));
      refuse_second(table, line.given.back(), seen);
    }
  }
  return line;
}

}  // namespace gradsync
