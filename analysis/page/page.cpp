#include "analysis/page/page.h"

#include <fmt/format.h>

#include "analysis/charts/html.h"
#include "analysis/page/page_parts.h"
#include "support/version.h"

namespace gradsync {

namespace {

std::string section(const std::string& id, const std::string& head, const std::string& inside) {
  if (inside.empty()) return "";
  return fmt::format(
      "<section id=\"{0}\" aria-labelledby=\"{0}-head\">\n<h2 "
      "id=\"{0}-head\">{1}</h2>\n{2}</section>\n",
      id, head, inside);
}

std::string fine_line(const std::string& text) {
  return text.empty() ? "" : "<p class=\"source\">" + html_text(text) + "</p>";
}

/// A sentence: with a capital, a full stop, and percent signs that stay beside their numbers.
std::string sentence(const std::string& text) {
  std::string result;
  for (std::size_t at = 0; at < text.size(); ++at)
    result += text.compare(at, 2, " %") == 0 ? "\xC2\xA0" : text.substr(at, 1);
  if (!result.empty() && result[0] >= 'a' && result[0] <= 'z')
    result[0] = static_cast<char>(result[0] - 'a' + 'A');
  return html_text(result) + ".";
}

std::string verdict(const std::vector<VerdictClause>& clauses) {
  if (clauses.empty()) return "";
  std::string text = "<ul class=\"verdict\">\n";
  for (const VerdictClause& clause : clauses)
    text += fmt::format("<li{}><p>{}</p><div>{}{}</div></li>\n",
                        clause.missing ? " class=\"missing\"" : "", sentence(clause.text),
                        fine_line(clause.condition), fine_line(source_text(clause)));
  return text + "</ul>\n";
}

std::string remarks(const RunSet& set) {
  if (set.remarks.empty()) return "";
  std::string text = "<div class=\"remarks\" role=\"note\"><p>What a reader must know:</p><ul>\n";
  for (const std::string& remark : set.remarks)
    text += "<li>" + html_text(remark) + "</li>\n";
  return text + "</ul></div>\n";
}

std::string figures(const std::vector<NamedChart>& charts) {
  std::string text;
  for (std::size_t i = 0; i < charts.size(); ++i)
    text += page_figure(charts[i], i + 1);
  return text;
}

std::string all_tables(const std::vector<Table>& tables) {
  std::string text;
  for (const Table& table : tables)
    text += page_table(table);
  return text;
}

std::string contents(const PageContent& content) {
  std::string text = "<nav aria-label=\"Contents\"><ul>\n";
  if (!content.verdict.empty()) text += "<li><a href=\"#verdict\">Verdict</a></li>\n";
  text +=
      "<li><a href=\"#figures\">Key figures</a></li>\n<li><a href=\"#runs\">What was "
      "run</a></li>\n";
  if (!content.charts.empty()) text += "<li><a href=\"#plots\">Plots</a></li>\n";
  for (const Table& table : content.tables)
    text += fmt::format("<li><a href=\"#table-{}\">{}</a></li>\n", id_text(table.name),
                        html_text(table.title));
  return text + "<li><a href=\"#computed\">How the numbers are computed</a></li>\n</ul></nav>\n";
}

std::string document_head(const std::string& title) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n"
      "<style>\n{}</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">To the content</a>\n",
      html_text(title), page_style());
}

std::string dates(const RunSet& set) {
  std::string first, last;
  for (const Run& run : set.runs) {
    const std::string& created = run.reader->info().created;
    const std::string& ended = run.reader->finished().empty() ? created : run.reader->finished();
    if (first.empty() || created < first) first = created;
    if (ended > last) last = ended;
  }
  const std::string from = first.substr(0, 10), to = last.substr(0, 10);
  return from == to ? from : from + " to " + to;
}

}  // namespace

std::string claim_id(const std::string& table, std::size_t row, const std::string& column) {
  return fmt::format("{}.{}.{}", table, row, column);
}

std::string render_page(const RunSet& set, const PageContent& content) {
  const std::string title = study_title(set);
  std::string text = document_head(title);
  text += fmt::format(
      "<header>\n<p class=\"kicker\">What gradient synchronisation costs</p>\n<h1>{}</h1>\n"
      "<p class=\"when\">{} run{}, {}</p>\n</header>\n",
      html_text(title), set.runs.size(), set.runs.size() == 1 ? "" : "s", html_text(dates(set)));
  text += contents(content) + "<main id=\"main\">\n" + remarks(set);
  text += section("verdict", "Verdict", verdict(content.verdict));
  text += section("figures", "Key figures", key_figures(set));
  text += section("runs", "What was run", what_was_run(set));
  text += section("plots", "Plots", figures(content.charts));
  text += section("tables", "Tables", all_tables(content.tables));
  text += section("computed", "How the numbers are computed", how_computed(content.tables));
  return text +
         fmt::format(
             "</main>\n<footer><p>Made by gradsync-report, revision {}, from the run files named "
             "above; the same files give the same page.</p></footer>\n<script>\n{}</script>\n"
             "</body>\n</html>\n",
             html_text(revision()), page_script());
}

}  // namespace gradsync
