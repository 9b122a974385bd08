#pragma once

#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/curves/curve_file.h"

/// What the readers of curve_file.h have in common.
namespace gradsync::report {

/// A text, line by line.
class CurveLines {
 public:
  CurveLines(const std::filesystem::path& path, std::string_view text) : path_(path), rest_(text) {}

  /// Goes to the next line; false behind the last one.
  bool next();
  /// The first 1,000 characters of the line.
  std::string_view line() const { return line_; }
  /// Its words, between blanks.
  const std::vector<std::string_view>& words() const { return words_; }

  /// Whether it has so many words or more, of which the first is digits: a row of a table.
  bool is_row(std::size_t least_words) const;
  /// A word as a number from 0 to 1e15, or refuse().
  double number(std::size_t word) const;
  std::int64_t whole(std::size_t word) const;
  /// Throws Error kBadData with file and line.
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  const std::filesystem::path& path_;
  std::string_view rest_, line_;
  std::vector<std::string_view> words_;
  std::size_t line_number_ = 0;
};

/// What a tool calls its collectives. Those that it has beside them are left out.
using ToolNames = std::initializer_list<std::pair<std::string_view, CollectiveKind>>;
std::optional<CollectiveKind> kind_named(std::string_view name, ToolNames names);

/// The payload of one rank of a size as MPI's benchmarks count it: of a reduce-scatter, whose size
/// is of all ranks, its part.
std::int64_t payload_bytes(CollectiveKind kind, std::int64_t size, std::int64_t ranks);

/// Whether a text is of a tool, and its curves, in which the same ranks may stand several times,
/// and rows of any type and of 0 bytes.
struct CurveFormat {
  bool (*recognizes)(std::string_view text);
  CurveFileContent (*read)(const CurveFile& file, std::string_view text);
};

CurveFormat nccl_tests_text();
CurveFormat nccl_tests_json();
CurveFormat osu_text();
CurveFormat imb_text();

}  // namespace gradsync::report
