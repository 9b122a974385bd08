#include "analysis/published/csv.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/parse.h"

namespace gradsync::report::published {

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

class Parser {
 public:
  Parser(std::string_view text, const std::string& name) : text_(text), name_(name) {
    if (text_.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
  }

  std::vector<CsvRecord> records() {
    std::vector<CsvRecord> all;
    while (!ended()) {
      CsvRecord record = next_record();
      const bool empty = record.fields.size() == 1 && record.fields.front().empty();
      if (!empty) all.push_back(std::move(record));
    }
    return all;
  }

 private:
  CsvRecord next_record() {
    CsvRecord record{line_, {}};
    do {
      record.fields.push_back(next_field());
    } while (take_comma());
    take_line_end();
    return record;
  }

  std::string next_field() {
    skip_blanks();
    return !ended() && text_[at_] == '"' ? quoted_field() : plain_field();
  }

  std::string plain_field() {
    const std::size_t begin = at_;
    for (; !ended() && !at_separator(); ++at_) {
      if (text_[at_] == '"')
        refuse(line_, "a quote inside a field that does not begin with one",
               "put the whole field in quotes and double the quotes inside it");
      if (text_[at_] == '\0') refuse(line_, "this is not a text file");
    }
    return std::string(trimmed(text_.substr(begin, at_ - begin)));
  }

  std::string quoted_field() {
    const std::size_t opened = line_;
    std::string field;
    for (++at_; !ended(); ++at_) {
      if (text_[at_] == '"' && !take_doubled_quote()) return closed(std::move(field));
      if (text_[at_] == '\0') refuse(line_, "this is not a text file");
      if (text_[at_] == '\n') ++line_;
      field += text_[at_];
    }
    refuse(opened, "the quote that opens a field here is never closed");
  }

  std::string closed(std::string field) {
    ++at_;
    skip_blanks();
    if (!ended() && !at_separator()) refuse(line_, "there is text after a closing quote");
    return field;
  }

  // On the first of two quotes: moves to the second, which then is a character of the field.
  bool take_doubled_quote() {
    if (at_ + 1 >= text_.size() || text_[at_ + 1] != '"') return false;
    ++at_;
    return true;
  }

  bool take_comma() {
    if (ended() || text_[at_] != ',') return false;
    ++at_;
    return true;
  }

  void take_line_end() {
    if (ended()) return;
    const bool carriage_return = text_[at_++] == '\r';
    if (carriage_return && !ended() && text_[at_] == '\n') ++at_;
    ++line_;
  }

  void skip_blanks() {
    while (!ended() && (text_[at_] == ' ' || text_[at_] == '\t'))
      ++at_;
  }

  bool ended() const { return at_ >= text_.size(); }
  bool at_separator() const {
    return text_[at_] == ',' || text_[at_] == '\n' || text_[at_] == '\r';
  }

  [[noreturn]] void refuse(std::size_t line, const std::string& why, const std::string& fix = {}) {
    throw Error(ExitCode::kBadData, fmt::format("{}:{}: {}", name_, line, why), fix);
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0, line_ = 1;
};

}  // namespace

std::vector<CsvRecord> parse_csv(std::string_view text, const std::string& name) {
  return Parser(text, name).records();
}

}  // namespace gradsync::report::published
