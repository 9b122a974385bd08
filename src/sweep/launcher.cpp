#include "sweep/launcher.h"

#include <set>

#include "support/parse.h"
#include "train/options.h"

namespace gradsync {

namespace {

bool is_plain(const std::string& text) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%";
  return !text.empty() && text.find_first_not_of(kPlain) == std::string::npos;
}

std::string shell_quoted(const std::string& text) {
  if (is_plain(text)) return text;
  std::string quoted = "'";
  for (const char c : text)
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// Quotes in front of the = would make the shell take an assignment for a program.
std::string assignment(const std::string& setting) {
  const std::size_t value = setting.find('=') + 1;
  return setting.substr(0, value) + shell_quoted(setting.substr(value));
}

}  // namespace

CellFiles cell_files(const std::filesystem::path& folder, const GridCell& cell) {
  const auto file = [&](const char* ending) { return folder / (cell.name + ending); };
  return {file(".h5"), file(".h5.journal"), file(".log"), file(".failed.json"), file(".pid")};
}

std::vector<std::string> trainer_arguments(const GridCell& cell) {
  std::set<std::string> switches;
  for (const auto& spec : train_option_table())
    if (spec.value_name.empty()) switches.insert(spec.name);
  std::vector<std::string> args;
  for (const auto& [key, value] : cell.options) {
    if (!switches.contains(key))
      args.push_back("--" + key + "=" + value);
    else
      args.push_back((parse_switch(value) ? "--" : "--no-") + key);
  }
  return args;
}

std::string shell_text(const LaunchCommand& command) {
  std::string text;
  for (const auto& setting : command.environment)
    text += assignment(setting) + ' ';
  for (const auto& arg : command.args)
    text += shell_quoted(arg) + ' ';
  if (!text.empty()) text.pop_back();
  return text;
}

}  // namespace gradsync
