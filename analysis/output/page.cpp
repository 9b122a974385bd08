#include "analysis/output/page.h"

#include <algorithm>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "analysis/output/document.h"
#include "analysis/output/page_parts.h"
#include "analysis/plots/html.h"
#include "base/parse.h"
#include "options/modes.h"

namespace gradsync::report {

namespace {

std::string fine_line(const std::string& text) {
  return text.empty() ? "" : "<p class=\"source\">" + html_text(text) + "</p>";
}

/// Names of networks and modes are written as they are.
bool begins_with_name(const VerdictClause& clause) {
  const auto begins_with = [&](const std::string& name) { return clause.text.starts_with(name); };
  return std::any_of(clause.networks.begin(), clause.networks.end(), begins_with) ||
         !mode_named(clause.text.substr(0, clause.text.find_first_of(" :"))).name.empty();
}

/// A sentence: with a capital, a full stop, and percent signs that stay beside their numbers.
std::string sentence(const VerdictClause& clause) {
  const std::string& text = clause.text;
  std::string result;
  for (std::size_t at = 0; at < text.size(); ++at)
    result += text.compare(at, 2, " %") == 0 ? "\xC2\xA0" : text.substr(at, 1);
  if (!begins_with_name(clause) && !result.empty() && result[0] >= 'a' && result[0] <= 'z')
    result[0] = static_cast<char>(result[0] - 'a' + 'A');
  return html_text(result) + ".";
}

std::string sentences(const std::vector<VerdictClause>& clauses) {
  if (clauses.empty()) return "";
  std::string text = "<ul class=\"verdict\">\n";
  for (const VerdictClause& clause : clauses)
    text += fmt::format("<li{}><p>{}</p><div>{}{}</div></li>\n",
                        clause.missing ? " class=\"missing\"" : "", sentence(clause),
                        fine_line(clause.condition), fine_line(source_text(clause)));
  return text + "</ul>\n";
}

std::string remarks(const RunSet& set) {
  if (set.remarks.empty()) return "";
  std::string text = "<div class=\"remarks\" role=\"note\"><p>Warnings</p><ul>\n";
  for (const std::string& remark : set.remarks)
    text += "<li>" + html_text(remark) + "</li>\n";
  return text + "</ul></div>\n";
}

/// The plot that stands beside the verdict: where an iteration goes.
constexpr std::string_view kLeadPlot = "split";

/// What the exchange costs and what would reduce it, beside the plot of it.
std::string answer(const PageContent& content) {
  std::string text = sentences(main_clauses(content.verdict));
  for (const NamedChart& chart : content.charts)
    if (chart.name == kLeadPlot) text += page_figure(chart, 0);
  return text.empty() ? "" : "<div class=\"lead\">\n" + text + "</div>\n";
}

/// The sentences that the answer leaves out.
std::string findings(const std::vector<VerdictClause>& clauses) {
  const auto main = main_clauses(clauses);
  std::vector<VerdictClause> others = clauses;
  std::erase_if(others, [&](const VerdictClause& clause) {
    return std::any_of(main.begin(), main.end(),
                       [&](const VerdictClause& one) { return one.text == clause.text; });
  });
  return sentences(others);
}

std::string figures(const std::vector<NamedChart>& charts) {
  std::string text;
  for (std::size_t i = 0; i < charts.size(); ++i)
    if (charts[i].name != kLeadPlot) text += page_figure(charts[i], i + 1);
  return text;
}

/// The first one open, the others folded; one without rows has nothing to show.
std::string all_tables(const std::vector<Table>& tables) {
  std::string text;
  for (const Table& table : tables)
    if (!table.rows.empty()) text += page_table(table, text.empty());
  return text;
}

void replace_all(std::string& text, const std::string& what, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
}

/// The page without what concerns the site alone.
std::string without_places(std::string page, const RunSet& set) {
  std::set<std::string> hosts, folders;
  for (const Run* run : all_runs(set)) {
    for (const RankPlace& place : run->reader->info().topology)
      hosts.insert(html_text(place.host));
    if (run->path.is_absolute())
      folders.insert(html_text(run->path.parent_path().parent_path().string()));
  }
  // The longest first: one may be the beginning of another.
  for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder)
    if (*folder != "/") replace_all(page, *folder + "/", "");
  std::size_t number = 0;
  for (const std::string& host : hosts) {
    const std::string alias = fmt::format("host {}", ++number);
    replace_all(page, "host " + host, alias);
    replace_all(page, "(" + host + ")", "(" + alias + ")");
    replace_all(page, ">" + host + "<", ">" + alias + "<");
  }
  return page;
}

/// Of the contents: id and text.
std::vector<std::pair<std::string, std::string>> links(const PageContent& content) {
  std::vector<std::pair<std::string, std::string>> all;
  if (!content.verdict.empty()) all.emplace_back("verdict", "Verdict");
  all.emplace_back("figures", "Key figures");
  if (!findings(content.verdict).empty()) all.emplace_back("findings", "Further findings");
  if (!content.charts.empty()) all.emplace_back("plots", "Plots");
  for (const Table& table : content.tables)
    if (!table.rows.empty()) all.emplace_back("table-" + id_text(table.name), table.title);
  all.emplace_back("runs", "Runs");
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
  document.title = content.title.empty() ? study_title(set) : content.title;
  document.kicker = "What gradient synchronization costs";
  const std::size_t runs = all_runs(set).size();
  document.when = count_text(runs, "run") + ", " + dates(set);
  document.links = links(content);
  document.before = remarks(set);
  document.sections = {{"verdict", "Verdict", answer(content)},
                       {"figures", "Key figures", key_figures(set)},
                       {"findings", "Further findings", findings(content.verdict)},
                       {"plots", "Plots", figures(content.charts)},
                       {"tables", "Tables", all_tables(content.tables)},
                       {"runs", "Runs", what_was_run(set, content.places)},
                       {"computed", "How the numbers are computed", how_computed(content.tables)}};
  document.made_from = "the run files named above; the same files give the same page";
  const std::string page = render_document(document);
  return content.places ? page : without_places(page, set);
}

}  // namespace gradsync::report
