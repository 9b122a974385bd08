// SPDX-License-Identifier: BSD-3-Clause
#include "base/cli/key_values.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/parse.h"

namespace gradsync {

namespace {

bool is_key_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

std::string_view without_comment(std::string_view line) {
  for (std::size_t i = 0; i < line.size(); ++i)
    if (line[i] == '#' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t'))
      return line.substr(0, i);
  return line;
}

[[noreturn]] void refuse_line(const std::string& where, const std::string& why) {
  throw Error(ExitCode::kUsage, where + ": " + why, "write it as: key = value   # comment");
}

char unescaped(char c, const std::string& where) {
  if (c == 'n') return '\n';
  if (c == '"' || c == '\\') return c;
  refuse_line(where, fmt::format("\\{} in a quoted value; only \\\" \\\\ and \\n are known", c));
}

// `text` begins with the opening quote.
std::string unquoted(std::string_view text, const std::string& where) {
  std::string value;
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '"') {
      if (!trimmed(without_comment(text.substr(i + 1))).empty())
        refuse_line(where, "there is text after the closing quote");
      return value;
    }
    const bool escaped = text[i] == '\\' && i + 1 < text.size();
    value += escaped ? unescaped(text[++i], where) : text[i];
  }
  refuse_line(where, "the closing quote is missing");
}

KeyValue parse_line(std::string_view line, const std::string& where) {
  const std::size_t equals = without_comment(line).find('=');
  KeyValue entry{std::string(trimmed(line.substr(0, equals))), "", where, false};
  if (equals == std::string_view::npos)
    refuse_line(where, fmt::format("\"{}\" has no =", excerpt(trimmed(without_comment(line)))));
  if (entry.key.empty() || !std::all_of(entry.key.begin(), entry.key.end(), is_key_character))
    refuse_line(where, fmt::format("\"{}\" is not a key", excerpt(entry.key)));
  const std::string_view value = trimmed(line.substr(equals + 1));
  entry.quoted = value.starts_with('"');
  // The whole rest of the line goes to without_comment, so that "key = # comment" is an empty
  // value.
  entry.value = entry.quoted ? unquoted(value, where)
                             : std::string(trimmed(without_comment(line.substr(equals + 1))));
  return entry;
}

}  // namespace

std::vector<KeyValue> parse_key_values(std::string_view text, const std::string& name) {
  std::vector<KeyValue> entries;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string where = fmt::format("{}:{}", name, number);
    if (line.find('\0') != std::string_view::npos) refuse_line(where, "this is not a text file");
    if (!trimmed(without_comment(line)).empty()) entries.push_back(parse_line(line, where));
  }
  return entries;
}

std::vector<KeyValue> read_key_values(const std::filesystem::path& file) {
  return parse_key_values(read_foreign_text(file), file.string());
}

std::string quoted_where_needed(const std::string& value) {
  if (value == trimmed(value) && value.find_first_of("\"#\n\\") == std::string::npos) return value;
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return quoted + '"';
}

void require_unique_keys(const std::vector<KeyValue>& entries,
                         const std::vector<std::string>& repeatable) {
  std::map<std::string, std::string> first_where;
  for (const auto& entry : entries) {
    if (std::find(repeatable.begin(), repeatable.end(), entry.key) != repeatable.end()) continue;
    const auto [known, added] = first_where.emplace(entry.key, entry.where);
    if (!added)
      throw Error(
          ExitCode::kUsage,
          fmt::format("{}: {} is given twice, first at {}", entry.where, entry.key, known->second),
          "remove one of the two lines");
  }
}

}  // namespace gradsync
