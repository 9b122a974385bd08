#include "analysis/page/page.h"

#include <fmt/format.h>

#include "analysis/charts/html.h"
#include "analysis/page/document.h"
#include "analysis/page/page_parts.h"

namespace gradsync::report {

namespace {

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

/// Of the contents: id and text.
std::vector<std::pair<std::string, std::string>> links(const PageContent& content) {
  std::vector<std::pair<std::string, std::string>> all;
  if (!content.verdict.empty()) all.emplace_back("verdict", "Verdict");
  all.emplace_back("figures", "Key figures");
  all.emplace_back("runs", "What was run");
  if (!content.charts.empty()) all.emplace_back("plots", "Plots");
  for (const Table& table : content.tables)
    all.emplace_back("table-" + id_text(table.name), table.title);
  all.emplace_back("computed", "How the numbers are computed");
  return all;
}

std::string dates(const RunSet& set) {
  std::string first, last;
  for (const Run* run : all_runs(set)) {
    const std::string& created = run->reader->info().created;
    const std::string& ended = run->reader->finished().empty() ? created : run->reader->finished();
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
  Document document;
  document.title = study_title(set);
  document.kicker = "What gradient synchronization costs";
  const std::size_t runs = all_runs(set).size();
  document.when = fmt::format("{} run{}, {}", runs, runs == 1 ? "" : "s", dates(set));
  document.links = links(content);
  document.before = remarks(set);
  document.sections = {{"verdict", "Verdict", verdict(content.verdict)},
                       {"figures", "Key figures", key_figures(set)},
                       {"runs", "What was run", what_was_run(set)},
                       {"plots", "Plots", figures(content.charts)},
                       {"tables", "Tables", all_tables(content.tables)},
                       {"computed", "How the numbers are computed", how_computed(content.tables)}};
  document.made_from = "the run files named above; the same files give the same page";
  return render_document(document);
}

}  // namespace gradsync::report
