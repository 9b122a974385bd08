// The lines of a log: titles of all tools, the prefix that a launcher puts before them, rows.

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include <fmt/format.h>

#include "analysis/read/curve_format.h"
#include "base/error.h"
#include "base/file.h"
#include "base/parse.h"

namespace gradsync::report {

namespace {

constexpr std::size_t kLongestLine = 1000;  // std::regex recurses for each character
constexpr std::size_t kLongestQuote = 60;
constexpr std::size_t kMostTitles = 8;
constexpr double kLargestNumber = 1e15;
constexpr std::string_view kBlanks = " \t\r\v\f";

std::string_view without_blanks(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  return line.substr(0, line.find_last_not_of(kBlanks) + 1);
}

std::string excerpt_of(std::string_view line) {
  line = without_blanks(line);
  return fmt::format("'{}{}'", with_escaped_bytes(line.substr(0, kLongestQuote)),
                     line.size() > kLongestQuote ? "…" : "");
}

bool is_whole(std::string_view word) {
  return word.find_first_not_of("0123456789") == std::string_view::npos;
}

std::size_t decimals_of(std::string_view word) {
  const std::size_t point = word.find('.');
  return point == word.npos ? 0 : word.size() - point - 1;
}

Words words_of(std::string_view line) {
  Words words;
  for (std::size_t at = line.find_first_not_of(kBlanks); at != line.npos;) {
    const std::size_t stop = std::min(line.find_first_of(kBlanks, at), line.size());
    words.push_back(line.substr(at, stop - at));
    at = line.find_first_not_of(kBlanks, stop);
  }
  return words;
}

/// Whether a line names columns, as of a tool that begins its titles without '#': two names, and no
/// more words of another kind, as a sentence has.
bool names_columns(std::string_view line) {
  constexpr std::array kNames = {"size",    "bytes",     "byte", "count", "message", "msg",
                                 "latency", "bandwidth", "time", "busbw", "algbw",   "us",
                                 "usec",    "ms",        "mb",   "gb",    "seconds", "s"};
  std::set<std::string> names;
  std::size_t known = 0, others = 0;
  std::string word;
  const auto end_word = [&] {
    if (word.empty()) return;
    if (std::find(kNames.begin(), kNames.end(), word) != kNames.end())
      names.insert(word), ++known;
    else
      ++others;
    word.clear();
  };
  for (const char c : line)
    if (std::isalpha(static_cast<unsigned char>(c)) != 0)
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else
      end_word();
  end_word();
  return names.size() > 1 && known >= others;
}

class LogReader {
 public:
  LogReader(const CurveFile& file, ToolRows& found) : found_(found) {
    tools_[0] = nccl_tests_text(found);
    tools_[1] = osu_text(file, found);
    tools_[2] = imb_text(found);
  }

  void read(std::string_view text) {
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      ++number_;
      ended_ = end < text.size();
      take_line(text.substr(0, std::min(end, kLongestLine)));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (tool_) tool_->end();
    if (damaged_ > 0)
      found_.remarks.push_back(damaged_ > 1 ? fmt::format("{}, as {} in tables", damage_,
                                                          count_text(damaged_ - 1, "other line"))
                                            : damage_);
  }

 private:
  void take_line(std::string_view line) {
    if (is_title(line)) return;
    const auto text = prefix_.rest(line);
    const Words words = words_of(text.value_or(line));
    if (!text) {
      if (open_ && words.size() > 1 && is_whole(words[0]))
        found_.left_out.insert("rows that do not begin as their title does");
      return;
    }
    if (words.empty()) return;
    if (words[0].starts_with('#') || words[0] == "Group") {
      const Heading heading = tool_ ? tool_->take_heading(std::string(without_blanks(*text)), words)
                                    : Heading::kEndsTable;
      if (heading == Heading::kColumns)
        open_ = true, interrupted_ = false, last_size_ = -1, decimals_ = 0;
      if (heading == Heading::kEndsTable) end_table(*text);
    } else if (words.size() > 1 && is_whole(words[0])) {
      take_row(*text, words);
    } else if (open_ && names_columns(*text)) {
      end_table(*text);
    } else {
      interrupted_ = true;
      if (open_) last_text_ = std::string(*text);
    }
  }

  /// A title behind whatever a launcher puts before each line.
  bool is_title(std::string_view line) {
    std::size_t at = line.find('#');
    for (int tried = 0; at != line.npos && tried < 3; at = line.find('#', at + 1), ++tried)
      for (const auto& tool : tools_) {
        if (!tool->takes_title(std::string(without_blanks(line.substr(at))))) continue;
        if (tool_ && tool_ != tool.get()) tool_->end();
        tool_ = tool.get();
        prefix_ = LinePrefix(line.substr(0, at));
        end_table(line.substr(at));
        return found_.known = true;
      }
    return false;
  }

  void end_table(std::string_view line) {
    open_ = false;
    ended_by_ = std::string(line);
  }

  void take_row(std::string_view line, const Words& words) {
    try {
      if (const int column = open_ ? tool_->rising_column() : -1;
          column >= 0 && static_cast<std::size_t>(column) < words.size()) {
        const double size = number_of(words[static_cast<std::size_t>(column)]);
        if (interrupted_ && size <= last_size_) end_table(last_text_);
        interrupted_ = false;
        last_size_ = size;
      }
      if (open_) {
        // "1749.6", and the file ends.
        const std::size_t above = std::exchange(decimals_, decimals_of(words.back()));
        if (!ended_ && decimals_ < above)
          throw Error(ExitCode::kBadData, "the file ends within it");
        return tool_->take_row(words);
      }
    } catch (const Error& error) {
      if (error.code() != ExitCode::kBadData || !open_) throw;
      if (damaged_++ == 0)
        damage_ = fmt::format("line {}: {}, {}; left out", number_, excerpt_of(line), error.what());
      return;
    }
    if (ended_by_.empty()) return;
    if (found_.left_out.size() < kMostTitles)
      found_.left_out.insert("rows below " + excerpt_of(ended_by_));
    ended_by_.clear();
  }

  ToolRows& found_;
  std::array<std::unique_ptr<ToolText>, 3> tools_;
  ToolText* tool_ = nullptr;  ///< of the last title
  LinePrefix prefix_;
  bool open_ = false, interrupted_ = false, ended_ = true;  ///< a table, the line
  std::size_t decimals_ = 0;                                ///< of the last word of the last row
  double last_size_ = -1;
  std::string last_text_, ended_by_, damage_;
  std::size_t number_ = 0;
  std::int64_t damaged_ = 0;
};

}  // namespace

double number_of(std::string_view word) {
  try {
    if (const double value = parse_number(word); value >= 0 && value <= kLargestNumber)
      return value;
  } catch (const Error&) {
    // Refused below.
  }
  throw Error(ExitCode::kBadData,
              fmt::format("{} is not a number from 0 to 1e15", excerpt_of(word)));
}

std::int64_t whole_of(std::string_view word) {
  const double value = number_of(word);
  const auto whole = static_cast<std::int64_t>(value);
  if (static_cast<double>(whole) != value)
    throw Error(ExitCode::kBadData, fmt::format("{} is not whole", excerpt_of(word)));
  return whole;
}

Columns::Columns(std::string_view line, std::initializer_list<std::string_view> known) {
  for (line = without_blanks(line); !line.empty(); line = without_blanks(line)) {
    const auto* title = std::find_if(known.begin(), known.end(), [&](std::string_view name) {
      return line.starts_with(name) &&
             (line.size() == name.size() || kBlanks.find(line[name.size()]) != kBlanks.npos);
    });
    if (title == known.end()) {
      titles_.clear();
      return;
    }
    titles_.emplace_back(*title);
    line.remove_prefix(title->size());
  }
}

std::optional<std::size_t> Columns::at(std::string_view title) const {
  const auto found = std::find(titles_.begin(), titles_.end(), title);
  if (found == titles_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - titles_.begin());
}

void Columns::require_as_many(std::size_t words) const {
  if (words != size())
    throw Error(ExitCode::kBadData,
                fmt::format("it has {} columns, and the table {}", words, size()));
}

void read_tables(const CurveFile& file, std::string_view text, ToolRows& found) {
  LogReader(file, found).read(text);
}

}  // namespace gradsync::report
