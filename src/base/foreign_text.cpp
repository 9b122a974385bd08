#include "base/foreign_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"

namespace gradsync {

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::size_t kLongestTag = 200;

bool is_digit(char c) {
  return (c >= '0' && c <= '9') || c == '.';
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

/// Bytes of a color sequence at the beginning, "\x1b[36m"; 0 if there is none.
std::size_t color_sequence(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const auto last = std::find_if(text.begin() + 2, text.end(), [](char c) { return c >= '@'; });
  return last == text.end() ? 0 : static_cast<std::size_t>(last - text.begin()) + 1;
}

/// Bytes of a tag at the beginning, "[1,0]<stdout>:" of Open MPI 4, "[prterun-a-7@1,0]<stdout>: "
/// of Open MPI 5; 0 if there is none.
std::size_t mpirun_tag(std::string_view text) {
  text = text.substr(0, kLongestTag);
  text = text.substr(0, text.find('\n'));
  std::size_t end = 0;
  while (end < text.size() && text[end] == '[') {
    const std::size_t close = text.find(']', end);
    if (close == text.npos) return 0;
    end = close + 1;
  }
  if (end == 0) return 0;
  for (const std::string_view stream : {"<stdout>:", "<stderr>:", "<stddiag>:"})
    if (text.substr(end).starts_with(stream)) return end + stream.size();
  return 0;
}

/// The length of the run of one class of characters at the beginning; other characters stand alone.
std::size_t run_length(std::string_view text) {
  for (const auto of_class : {is_digit, is_letter, is_blank})
    if (!text.empty() && of_class(text.front()))
      return static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), of_class) -
                                      text.begin());
  return std::min<std::size_t>(1, text.size());
}

bool same_class(char a, char b) {
  for (const auto of_class : {is_digit, is_letter, is_blank})
    if (of_class(a)) return of_class(b);
  return a == b;
}

}  // namespace

std::string read_foreign_text(const std::filesystem::path& path) {
  const std::string bytes = read_text_file(path);
  std::string_view rest = bytes;
  if (rest.starts_with("\xFF\xFE") || rest.starts_with("\xFE\xFF"))
    throw Error(ExitCode::kBadData, fmt::format("'{}' is UTF-16", path.string()),
                "iconv -f UTF-16 -t UTF-8 FILE > NEW-FILE");
  std::string text;
  while (!rest.empty()) {
    const std::size_t plain = std::min(rest.find_first_of("\r\x1b[\xEF"), rest.size());
    text += rest.substr(0, plain);
    rest.remove_prefix(plain);
    std::size_t left_out = rest.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
    if (rest.starts_with("\r\n")) left_out = 1;
    if (left_out == 0) left_out = color_sequence(rest);
    if (const std::size_t tag = mpirun_tag(rest); left_out == 0 && tag > 0) {
      left_out = tag;
      // So that what follows does not touch a time before the tag.
      if (rest.size() > tag && !is_blank(rest[tag])) text += ' ';
    }
    if (left_out == 0) text += rest.substr(0, 1);
    rest.remove_prefix(std::min(std::max<std::size_t>(left_out, 1), rest.size()));
  }
  return text;
}

LinePrefix::LinePrefix(std::string_view text)
    : text_(std::all_of(text.begin(), text.end(), is_blank) ? std::string_view() : text) {}

std::optional<std::string_view> LinePrefix::rest(std::string_view line) const {
  for (std::string_view prefix = text_; !prefix.empty();) {
    if (line.empty() || !same_class(prefix.front(), line.front())) return std::nullopt;
    prefix.remove_prefix(run_length(prefix));
    line.remove_prefix(run_length(line));
  }
  return line;
}

}  // namespace gradsync
