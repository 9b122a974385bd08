// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/table.h"

namespace gradsync {

namespace {

/// A float does not break over pages: more rows make a further one.
constexpr std::size_t kMostRows = 40, kMostRowsSideways = 25;
/// Characters across, above which a table stands on its side: more would be too small to read.
constexpr std::size_t kWidest = 110;
/// Characters of a row that are read without a glass on an A4 page with usual margins.
constexpr std::size_t kA4 = 96;

struct Replacement {
  char plain;
  std::string_view latex;
};

/// `[` and `*` have a meaning after the end of a row.
constexpr std::array<Replacement, 17> kSpecial = {{{'\\', "\\textbackslash{}"},
                                                   {'{', "\\{"},
                                                   {'}', "\\}"},
                                                   {'%', "\\%"},
                                                   {'$', "\\$"},
                                                   {'&', "\\&"},
                                                   {'#', "\\#"},
                                                   {'_', "\\_"},
                                                   {'~', "\\textasciitilde{}"},
                                                   {'^', "\\textasciicircum{}"},
                                                   {'<', "\\textless{}"},
                                                   {'>', "\\textgreater{}"},
                                                   {'|', "\\textbar{}"},
                                                   {'"', "''"},
                                                   {'[', "{[}"},
                                                   {']', "{]}"},
                                                   {'*', "{*}"}}};

std::string ascii(char c) {
  if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') return " ";
  const auto special = std::ranges::find(kSpecial, c, &Replacement::plain);
  return special == kSpecial.end() ? std::string(1, c) : std::string(special->latex);
}

bool continues(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

/// The accented letters of Latin-1 (C3 80 to C3 BF in UTF-8) that every font encoding has; a
/// question mark for what a plain LaTeX would stop at.
std::string beyond_ascii(std::string_view bytes) {
  constexpr std::string_view kMissing = "\x90\x9e\xb0\xbe";  // eth and thorn
  static const std::map<std::string_view, std::string_view> kSymbols = {
      {"×", "$\\times$"}, {"µ", "$\\mu$"},  {"±", "$\\pm$"},    {"·", "$\\cdot$"},
      {"²", "$^2$"},      {"−", "$-$"},     {"σ", "$\\sigma$"}, {"Σ", "$\\Sigma$"},
      {"α", "$\\alpha$"}, {"β", "$\\beta$"}};
  if (const auto symbol = kSymbols.find(bytes); symbol != kSymbols.end())
    return std::string(symbol->second);
  if (bytes == "\xcc\x82") return "\\^{}";  // a combining circumflex, behind its letter
  const bool letter = bytes.size() == 2 && bytes[0] == '\xc3' && bytes[1] != '\xb7' &&
                      kMissing.find(bytes[1]) == std::string_view::npos;
  return letter ? std::string(bytes) : "?";
}

/// Two hyphens would become a dash.
std::string latex_escaped(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i + 1;
    if (text.compare(i, 2, "--") == 0) {
      result += "-{}";
    } else if (static_cast<unsigned char>(text[i]) < 0x80) {
      result += ascii(text[i]);
    } else {
      while (end < text.size() && continues(text[end]))
        ++end;
      result += beyond_ascii(std::string_view(text).substr(i, end - i));
    }
    i = end;
  }
  return result;
}

std::string cell_text(const Cell& cell) {
  if (!cell.is_number()) return latex_escaped(cell.text);
  const std::string shown = cell.shown();
  return shown.starts_with('-') ? "$-$" + shown.substr(1) : shown;
}

std::string cell_text(const std::vector<Cell>& row, const ShownColumn& shown) {
  return shown.interval ? latex_escaped(shown.cell(row)) : cell_text(row[shown.column]);
}

/// A cell a line, so that the ids of its numbers can stand behind it as a comment.
std::string row_text(const Table& table, const std::vector<ShownColumn>& columns, std::size_t row) {
  std::string text;
  for (const ShownColumn& shown : columns) {
    text += cell_text(table.rows[row], shown) + (&shown != &columns.back() ? " &" : " \\\\");
    std::string ids;
    for (std::size_t c = shown.column; c <= shown.column + (shown.interval ? 2 : 0); ++c)
      if (has_claim(table, row, c)) ids += ' ' + number_id(table, row, c);
    text += (ids.empty() ? "" : " %" + ids) + "\n";
  }
  return text;
}

std::string head_text(const Table& table, const std::vector<ShownColumn>& columns) {
  std::string text;
  for (const ShownColumn& shown : columns)
    text += (text.empty() ? "" : " & ") + latex_escaped(table.columns[shown.column].head);
  return text + " \\\\\n";
}

std::string alignment(const Table& table, const std::vector<ShownColumn>& columns) {
  std::string text;
  for (const ShownColumn& shown : columns)
    text += table.columns[shown.column].left ? 'l' : 'r';
  return text;
}

std::string notes_text(const Table& table, const std::vector<std::string>& left_out) {
  if (table.notes.empty() && left_out.empty()) return {};
  std::string text = "\\par\\smallskip\n\\begin{minipage}{\\linewidth}\\footnotesize\n";
  for (const std::string& note : table.notes)
    text += latex_escaped(note) + "\\par\n";
  if (!left_out.empty())
    text +=
        latex_escaped(fmt::format("Columns not shown: {}.", fmt::join(left_out, ", "))) + "\\par\n";
  return text + "\\end{minipage}\n";
}

bool is_wide(const Table& table, const std::vector<ShownColumn>& columns) {
  std::size_t width = 0;
  for (const ShownColumn& shown : columns) {
    std::size_t widest = display_width(table.columns[shown.column].head);
    for (const auto& row : table.rows)
      widest = std::max(widest, display_width(shown.cell(row)));
    width += widest + 2;
  }
  return width > kWidest;
}

/// Rows `from` to `to` as one float; a table wider than the text is scaled down to it.
std::string float_text(const Table& table, const ShownColumns& shown, std::size_t from,
                       std::size_t to, bool wide) {
  const std::string environment = wide ? "sidewaystable" : "table";
  std::string text =
      fmt::format("\\begin{{{}}}{}\n\\centering\n", environment, wide ? "" : "[htbp]");
  text += fmt::format("\\caption{{{}{}}}\n", latex_escaped(table.title),
                      from > 0 ? " (continued)" : "");
  if (from == 0) text += fmt::format("\\label{{tab:{}}}\n", table.name);
  text += "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%\n";
  text += fmt::format("\\begin{{tabular}}{{{}}}\n\\toprule\n", alignment(table, shown.columns));
  text += head_text(table, shown.columns) + "\\midrule\n";
  for (std::size_t row = from; row < to; ++row)
    text += row_text(table, shown.columns, row);
  text += "\\bottomrule\n\\end{tabular}}\n";
  if (to == table.rows.size()) text += notes_text(table, shown.left_out);
  return text + fmt::format("\\end{{{}}}\n", environment);
}

}  // namespace

std::string render_latex(const Table& table, bool all_columns) {
  const ShownColumns shown = shown_columns(table, all_columns ? 0 : kA4);
  const bool wide = is_wide(table, shown.columns);
  const std::size_t most = wide ? kMostRowsSideways : kMostRows;
  std::string text = fmt::format(
      "% Made by gradsync-report. In the preamble: \\usepackage{{booktabs,graphicx{}}}; here:\n"
      "% \\input{{{}}}. The comment after a number is its id in --claims.\n",
      wide ? ",rotating" : "", table.name);
  std::size_t from = 0;
  do {
    const std::size_t to = std::min(from + most, table.rows.size());
    text += float_text(table, shown, from, to, wide);
    from = to;
  } while (from < table.rows.size());
  return text;
}

}  // namespace gradsync
