#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/output/page_parts.h"
#include "analysis/plots/html.h"
#include "analysis/plots/svg.h"
#include "base/table_formats.h"

namespace gradsync::report {

namespace {

/// How a number came about, for its title.
std::string claim_title(const Table& table, std::size_t row, std::size_t column) {
  const Column& about = table.columns[column];
  std::string text = about.name;
  if (!about.formula.empty()) text += " = " + about.formula;
  if (!about.dataset.empty()) text += "; data set: " + about.dataset;
  if (row < table.sources.size() && !table.sources[row].empty())
    text += "; file: " + table.sources[row];
  return text;
}

std::string cell(const Table& table, std::size_t row, std::size_t column) {
  const Cell& value = table.rows[row][column];
  const std::string shown = html_text(value.shown());
  if (!value.is_number())
    return column == 0 ? "<th scope=\"row\">" + shown + "</th>"
                       : fmt::format("<td{}>{}</td>",
                                     table.columns[column].left ? "" : " class=\"n\"", shown);
  const std::string exact = std::isfinite(value.number) ? machine_number(value.number) : "";
  return fmt::format(
      "<td class=\"n{}\" id=\"{}\" data-value=\"{}\" title=\"{}\">{}</td>",
      exact.empty() ? " none" : "",
      html_text(claim_id(id_text(table.name), row + 1, id_text(table.columns[column].name))), exact,
      html_text(claim_title(table, row, column)), shown);
}

std::string head_row(const Table& table) {
  std::string text = "<thead><tr>";
  for (const Column& column : table.columns)
    text +=
        fmt::format("<th scope=\"col\"{} title=\"{}\">{}</th>", column.left ? "" : " class=\"n\"",
                    html_text(column.name), html_text(column.head));
  return text + "</tr></thead>\n";
}

std::string body(const Table& table) {
  std::string text = "<tbody>\n";
  const std::size_t rows = std::min(table.rows.size(), kMostPageRows);
  for (std::size_t row = 0; row < rows; ++row) {
    text += "<tr>";
    for (std::size_t column = 0; column < table.columns.size(); ++column)
      text += cell(table, row, column);
    text += "</tr>\n";
  }
  return text + "</tbody>";
}

std::string notes(const Table& table) {
  std::string text;
  if (table.rows.size() > kMostPageRows)
    text += fmt::format("<li>{} more rows are not shown here; --format csv writes them all</li>\n",
                        table.rows.size() - kMostPageRows);
  for (const std::string& note : table.notes)
    text += "<li>" + html_text(note) + "</li>\n";
  return text.empty() ? "" : "<ul class=\"notes\">\n" + text + "</ul>\n";
}

std::string panel_id_of(const std::string& id, std::size_t index) {
  return fmt::format("{}-{}", id, index + 1);
}

/// One legend for all panels, where they have the same; else empty.
std::string common_legend(const Chart& chart, const std::string& id) {
  const std::string first_id = panel_id_of(id, 0);
  std::string legend;
  for (const ChartPanel& panel : chart.panels) {
    const std::string own = svg_legend(panel, first_id);
    if (&panel != &chart.panels.front() && own != legend) return "";
    legend = own;
  }
  return legend;
}

std::string panel(const NamedChart& plot, std::size_t index, const std::string& id,
                  bool with_legend) {
  const ChartPanel& one = plot.chart.panels[index];
  const std::string panel_id = panel_id_of(id, index);
  const std::string below =
      one.subtitle.empty() ? "" : "<p class=\"subtitle\">" + html_text(one.subtitle) + "</p>\n";
  return "<div class=\"panel\">\n<h4>" + html_text(one.title) + "</h4>\n" +
         svg_panel(plot.chart, one, panel_id) + below +
         (with_legend ? svg_legend(one, panel_id) : "") + "</div>\n";
}

std::string formulas_of(const Table& table) {
  std::string text;
  for (const Column& column : table.columns) {
    if (column.formula.empty()) continue;
    const std::string from =
        column.dataset.empty() ? ""
                               : " <span class=\"source\">" + html_text(column.dataset) + "</span>";
    text += fmt::format("<dt><code>{}</code></dt><dd>{}{}</dd>\n", html_text(column.name),
                        html_text(column.formula), from);
  }
  if (text.empty()) return "";
  return "<h3>" + html_text(table.title) + "</h3>\n<dl class=\"facts\">\n" + text + "</dl>\n";
}

}  // namespace

std::string page_figure(const NamedChart& plot, std::size_t number) {
  const std::string id = "plot-" + id_text(plot.name);
  std::string text = fmt::format(
      "<figure id=\"{}\">\n<figcaption><h3>{}</h3>\n<p>{}</p></figcaption>\n<div "
      "class=\"panels\">\n",
      id, html_text(plot.chart.title), html_text(caption_text(plot.chart)));
  const std::string legend = common_legend(plot.chart, id);
  for (std::size_t i = 0; i < plot.chart.panels.size(); ++i)
    text += panel(plot, i, id, legend.empty());
  return text + "</div>\n" + legend +
         fmt::format(
             "<p class=\"readout\" aria-live=\"polite\" "
             "id=\"readout-{}\">&nbsp;</p>\n</figure>\n",
             number);
}

std::string page_table(const Table& table, bool open) {
  return fmt::format(
             "<details class=\"table\" id=\"table-{0}\"{2}>\n<summary>{1}</summary>\n<div "
             "class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{1}\"><table>\n",
             id_text(table.name), html_text(table.title), open ? " open" : "") +
         head_row(table) + body(table) + "</table></div>\n" + notes(table) + "</details>\n";
}

std::string page_formulas(const std::vector<Table>& tables) {
  std::string text;
  for (const Table& table : tables)
    text += formulas_of(table);
  return text;
}

std::string how_computed(const std::vector<Table>& tables) {
  std::string text =
      "<p>Only finite values count. What was not measured is n/a, never 0. Nothing is clipped. The "
      "id of each number in a table, <code>table.row.column</code>, names its claim; the number in "
      "full precision, its formula, data set and file show on pointing at it.</p>\n"
      "<p>Of one rank and one iteration of length W, with C the union of its compute intervals and "
      "K the union of its collectives from the arrival of the last rank on, S of its collectives "
      "before that: compute = |C|, hidden = |C and K|, exposed = |K without C|, straggler wait = "
      "|S without C and K|, other = W - |C or K or S|; so compute + exposed + straggler wait + "
      "other = W. Runs of schema 1 count straggler wait as K. Quantiles are of type 7 (Hyndman "
      "and "
      "Fan, 1996), deviations have n - 1 below the sum. Intervals of medians are distribution-free "
      "(order statistics), those of ratios come from the percentile bootstrap.</p>\n";
  return text + page_formulas(tables);
}

}  // namespace gradsync::report
