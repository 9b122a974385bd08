// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <initializer_list>
#include <iosfwd>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace gradsync {

/// One value of a table: a text, or a number that keeps full precision for machine formats and is
/// rounded to `decimals` for people. NaN means "not measured" and prints as n/a, never as 0.
struct Cell {
  std::string text;
  double number = std::numeric_limits<double>::quiet_NaN();
  int decimals = -1;  ///< digits behind the point for people; -1 marks a text cell

  Cell() = default;
  /// Texts come from files of others: the cell holds printable(value).
  Cell(std::string_view value);
  Cell(const std::string& value) : Cell(std::string_view(value)) {}
  Cell(const char* value) : Cell(std::string_view(value)) {}
  static Cell of(double value, int decimals_shown);
  static Cell count(double value) { return of(value, 0); }

  bool is_number() const { return decimals >= 0; }
  /// The text of the cell.
  std::string shown() const;
};

struct Column {
  std::string name;          ///< machine name with its unit, e.g. `iteration_mean_ms`
  std::string head;          ///< above the column, unit included
  bool left = false;         ///< texts read from the left, numbers align right
  std::string formula = {};  ///< how the number is computed, for --claims; empty: no claim
  std::string dataset = {};  ///< what it is computed from: "/time/iteration"
  int detail = 1;      ///< 0: always shown; the larger, the sooner a narrow text leaves it out
  bool label = false;  ///< tells rows apart; a narrow text keeps as many labels as that takes
};

/// Sets detail 0 in the columns with these names: what the table is for. Throws Error kInternal for
/// a name that no column has.
void keep(std::vector<Column>& columns, std::initializer_list<std::string_view> names);

/// A result in rows and columns, free of any output format.
struct Table {
  std::string name;  ///< file name and JSON key, e.g. `modes`
  std::string title;
  std::vector<std::string> notes;  ///< how the numbers were computed, n, what was left out
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
  std::vector<std::string> sources =
      {};  ///< of each row: the files it comes from, with ", " between

  /// Appends a row. Requires as many cells as columns (throws Error kInternal otherwise).
  void add(std::vector<Cell> row, std::string source = "");
};

/// Whether the cell is a number with a claim: its column says how it is computed.
bool has_claim(const Table& table, std::size_t row, std::size_t column);

/// The id that such a number carries in Markdown, LaTeX and HTML and in --claims: the table's name,
/// the row counted from 1 and the column's name, "modes.3.iteration_mean_ms". Characters other than
/// letters, digits, '-' and '_' in a name become '_'.
std::string number_id(const Table& table, std::size_t row, std::size_t column);

/// Aligned plain text: title, head, rule, rows, notes.
void print_text(std::ostream& out, const Table& table);

/// Whether the two columns after this one are its interval: their heads are "low" and "high".
bool has_interval(const Table& table, std::size_t column);

/// One column of text: a column of the table, with the two after it, headed "low"
/// and "high", as "[low, high]" where it has an interval.
struct ShownColumn {
  std::size_t column;
  bool interval = false;

  std::string cell(const std::vector<Cell>& row) const;
};

/// The columns that fit `width` characters, and the heads of the others. Left out are, first, those
/// that say the same in all rows (with the head comes what they say), then the largest detail, and
/// of the same the rightmost; never the first column, those of detail 0, and a label without which
/// two rows would have the same ones. 0: all columns, without intervals.
struct ShownColumns {
  std::vector<ShownColumn> columns;
  std::vector<std::string> left_out;
};
ShownColumns shown_columns(const Table& table, std::size_t width);

/// print_text in at most `width` characters where that is possible: two columns headed "low" and
/// "high" become "[low, high]" in the column before them, columns that do not fit are left out and
/// named, and of the notes there are the first `most_notes`. The last line says that `all` shows
/// the rest.
void print_narrow_text(std::ostream& out, const Table& table, std::size_t width,
                       const std::string& all, std::size_t most_notes = 2);

/// An object with schema_version, name, title, notes, columns and rows, a row being an object; null
/// where a number was not measured. Ends with a newline.
std::string table_json(const Table& table);

/// Characters of a line on standard output: COLUMNS, else those of its terminal, else 100; at least
/// 60.
std::size_t output_columns();

/// `text` broken at spaces into lines of at most `width` characters.
std::vector<std::string> wrapped(const std::string& text, std::size_t width);

/// Columns a text takes on a terminal: UTF-8 code points, not bytes.
std::size_t display_width(const std::string& text);

/// `text` filled with spaces to `width` columns, on the left or on the right.
std::string padded(const std::string& text, std::size_t width, bool left);

/// Formats, one function each; formats() lists them. NaN is n/a for people, an empty field in CSV
/// and null in JSON. All texts end with a newline.
std::string render_text(const Table& table);
/// A pipe table under a heading, the notes as a list below. A number is a span with its id, which
/// renderers keep as a target for links.
std::string render_markdown(const Table& table);
/// RFC 4180 with line feeds: a header row of machine names, numbers in full precision, no notes; an
/// apostrophe before a text that a spreadsheet would compute.
std::string render_csv(const Table& table);

/// Floats of a booktabs tabular each, with caption, label and the notes below; long tables make
/// several, wide ones stand on their side. Needs the packages booktabs and graphicx, and rotating
/// for wide ones; the first line names them. The id of a number stands behind it as a comment.
/// Without `wide`: the columns that fit an A4 page, the others being named below the table.
std::string render_latex(const Table& table, bool wide = false);

/// A finite number as short as it reads back unchanged, whole numbers without a point.
std::string machine_number(double value);

/// A form of a table. A new one is a `render` function and a line in table_formats.cpp.
struct FormatSpec {
  std::string name;
  std::string extension;  ///< of its files
  std::string description;
  /// `wide`: with all columns, where people read it.
  std::string (*render)(const Table& table, bool wide);
};

const std::vector<FormatSpec>& formats();

/// One test of a JUnit file.
struct JunitCase {
  enum class Result { kPassed, kFailed, kSkipped };

  std::string name;
  Result result = Result::kPassed;
  std::string message;  ///< why it failed or was skipped; what it printed if it passed
  std::string type;     ///< of a failure
};

/// A JUnit XML file of one suite. What XML 1.0 cannot hold becomes a question mark.
std::string junit_suite(const std::string& suite, const std::string& class_name,
                        const std::vector<JunitCase>& cases);

}  // namespace gradsync
