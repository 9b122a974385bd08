// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/read/curve_file.h"

/// What the readers of curve_file.h have in common: tables of tools in the lines of a log.
namespace gradsync::report {

inline constexpr const char *kBackToBack = "back-to-back", *kIsolated = "isolated";

/// A measurement of another tool, with the conditions that a calibration has in one kind only.
struct ToolRow {
  std::int64_t ranks = 0;
  CalibrationRow row;
  std::string redop;  ///< "sum"; empty: none, or not told
  std::int64_t root = 0;
};

/// What the readers found in a file.
struct ToolRows {
  std::vector<ToolRow> rows;
  std::vector<std::string> remarks;  ///< without the name of the file
  std::set<std::string> left_out;    ///< tests that have no counterpart here, titles not known
  bool known = false;                ///< a title or a document of a known tool stands in the file
};

/// A word as a number from 0 to 1e15. Throws Error kBadData, which says why, as `whole_of` does for
/// one that is not whole.
double number_of(std::string_view word);
std::int64_t whole_of(std::string_view word);

using Words = std::vector<std::string_view>;

/// The titles of a table's columns.
class Columns {
 public:
  Columns() = default;
  /// Titles in a line, each of which must be one of `known`; none if one is not.
  Columns(std::string_view line, std::initializer_list<std::string_view> known);

  bool empty() const { return titles_.empty(); }
  std::size_t size() const { return titles_.size(); }
  const std::vector<std::string>& titles() const { return titles_; }
  std::optional<std::size_t> at(std::string_view title) const;
  /// Throws Error kBadData where a row has more words than columns, or fewer.
  void require_as_many(std::size_t words) const;

 private:
  std::vector<std::string> titles_;
};

/// How a line that is no row is to be taken.
enum class Heading {
  kDetail,     ///< of the tool; a table that is open continues
  kColumns,    ///< titles of columns: a table begins
  kEndsTable,  ///< known or not; rows that follow are of no table
};

/// The tables that one tool prints. A reader of lines calls it: a table is known by its title and
/// its columns, and whatever else looks like a title ends it.
class ToolText {
 public:
  explicit ToolText(ToolRows& found) : found_(found) {}
  virtual ~ToolText() = default;
  ToolText(const ToolText&) = delete;
  ToolText& operator=(const ToolText&) = delete;

  /// Whether a line, from its '#', is a title of this tool, which has then been taken.
  virtual bool takes_title(const std::string& line) = 0;
  /// A comment or the titles of columns, below a title of this tool.
  virtual Heading take_heading(const std::string& line, const Words& words) = 0;
  /// Throws Error, which says why, for a row that is damaged.
  virtual void take_row(const Words& words) = 0;
  /// Another title, or the end of the file.
  virtual void end() {}
  /// The column whose values rise within a table: where they do not after another line, the row is
  /// of another table. −1: none does.
  virtual int rising_column() const { return 0; }

 protected:
  ToolRows& found_;
};

std::unique_ptr<ToolText> nccl_tests_text(ToolRows& found);
/// Reads the JSON documents of nccl-tests and of gradsync-calibrate, with whatever lines between.
void read_documents(const std::string& text, ToolRows& found);

}  // namespace gradsync::report
