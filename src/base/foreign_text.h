#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

/// Texts of other programs and of people, without what editors, launchers and loggers add to them.
namespace gradsync {

/// A text file without byte order marks, carriage returns before a line feed, color sequences of
/// terminals, and the tags of mpirun ("[1,0]<stdout>:"), which stand within a line as well where a
/// program flushes parts of it. Throws Error as read_text_file, and kBadData for UTF-16.
std::string read_foreign_text(const std::filesystem::path& path);

/// What stands before each line of a program: a time, a rank, a host, indentation. It is learned
/// from a line whose own beginning is known; then its numbers and words may be others (times,
/// months, levels), and runs of blanks of any length.
class LinePrefix {
 public:
  LinePrefix() = default;
  explicit LinePrefix(std::string_view text);

  /// The line behind its prefix; nothing if it begins in another way.
  std::optional<std::string_view> rest(std::string_view line) const;

 private:
  std::string text_;  // empty: none
};

}  // namespace gradsync
