#pragma once

#include <string>
#include <vector>

#include "base/table.h"

/// One function a format, each in the file of its name; table_formats.cpp lists them. NaN is n/a
/// for people, an empty field in CSV and null in JSON. All texts end with a newline.
namespace gradsync {

std::string render_text(const Table& table);
/// A pipe table under a heading, the notes as a list below. A number is a span with its id, which
/// renderers keep as a target for links.
std::string render_markdown(const Table& table);
/// RFC 4180 with line feeds: a header row of machine names, numbers in full precision, no notes.
std::string render_csv(const Table& table);

/// Floats of a booktabs tabular each, with caption, label and the notes below; long tables make
/// several, wide ones stand on their side. Needs the packages booktabs and graphicx, and rotating
/// for wide ones; the first line names them. The id of a number stands behind it as a comment.
/// Without `wide`: the columns that fit an A4 page, the others being named below the table.
std::string render_latex(const Table& table, bool wide = false);

/// A finite number as short as it reads back unchanged, whole numbers without a point.
std::string machine_number(double value);

/// A form of a table. A new one is a file with a `render` function and a line in table_formats.cpp.
struct FormatSpec {
  std::string name;
  std::string extension;  ///< of its files
  std::string description;
  /// `wide`: with all columns, where people read it.
  std::string (*render)(const Table& table, bool wide);
};

const std::vector<FormatSpec>& formats();

}  // namespace gradsync
