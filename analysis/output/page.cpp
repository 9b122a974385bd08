// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/output/page.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "analysis/output/page_parts.h"
#include "analysis/plots/html.h"
#include "analysis/plots/svg.h"
#include "base/hash.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "base/version.h"
#include "options/modes.h"

namespace gradsync::report {

namespace {

// NOLINTNEXTLINE(readability-function-size): a text
std::string page_style() {
  return R"css(:root{--paper:#fdfdfb;--ink:#1d1f22;--soft:#5c626b;--rule:#dfe1e4;--band:#f4f5f3;--link:#0b5394;
--head:#fdfdfb;--grid:#e4e6e8;--strong:#0b5394}
@media (prefers-color-scheme:dark){:root{--paper:#15171a;--ink:#e6e7e9;--soft:#a0a6ae;--rule:#31353b;
--band:#1d2024;--link:#8ec1f2;--head:#15171a;--grid:#2b2f35;--strong:#8ec1f2}}
*{box-sizing:border-box}
html{scroll-behavior:smooth;-webkit-text-size-adjust:100%}
@media (prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
body{margin:0;background:var(--paper);color:var(--ink);
font:1rem/1.6 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
header,nav,main,footer{max-width:76rem;margin:0 auto;padding:0 1.25rem}
header{padding-top:3.5rem}
.kicker{margin:0;color:var(--soft);letter-spacing:.02em}
h1{font-size:clamp(1.6rem,1.1rem + 2.4vw,2.6rem);line-height:1.15;font-weight:650;margin:.3rem 0 .4rem;text-wrap:balance;overflow-wrap:anywhere}
.when{margin:0;color:var(--soft)}
h2{font-size:1.45rem;font-weight:650;margin:0 0 1.2rem;padding-top:.6rem;border-top:1px solid var(--rule)}
h3{font-size:1.1rem;font-weight:650;margin:0 0 .4rem}
h4{font-size:.95rem;font-weight:600;margin:0 0 .3rem}
main>section{margin:3.2rem 0}
p{max-width:46rem;margin:.4rem 0}
a{color:var(--link);text-underline-offset:.15em}
:focus-visible{outline:2px solid var(--link);outline-offset:2px}
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem;top:1rem;background:var(--paper);padding:.4rem .8rem}
nav ul{display:flex;flex-wrap:wrap;gap:.2rem 1.4rem;list-style:none;padding:0;margin:1.6rem 0 0}
nav a{text-decoration:none}nav a:hover{text-decoration:underline}
code{font:.88em ui-monospace,"SF Mono",Menlo,Consolas,monospace;overflow-wrap:anywhere}
.verdict{list-style:none;padding:0;margin:0}
.verdict li{margin:0 0 1rem}.verdict li>p:first-child{font-size:1.15rem;line-height:1.5}
.verdict .missing>p:first-child{color:var(--soft)}
@media (min-width:62rem){.verdict li{display:grid;grid-template-columns:minmax(0,3fr) minmax(0,2fr);gap:0 2.5rem;align-items:baseline}}
.source,.fine,.subtitle{color:var(--soft);font-size:.85rem}
.source{overflow-wrap:anywhere}.verdict p{margin:0}.subtitle{margin:0 0 .3rem}
.remarks{background:var(--band);border-left:3px solid #c77700;padding:.6rem 1rem;margin-top:2rem;overflow-wrap:anywhere}
.remarks ul{margin:.2rem 0;padding-left:1.1rem}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(14rem,1fr));gap:2rem;margin:0}
.card dt{color:var(--soft)}.card dd{margin:0}.big{font-size:2rem;font-weight:650;line-height:1.25;font-variant-numeric:tabular-nums}
.where{color:var(--soft);font-size:.85rem;line-height:1.45}
.facts{display:grid;grid-template-columns:minmax(7rem,max-content) 1fr;gap:.25rem 1.4rem;margin:0 0 1rem}
.facts dt{color:var(--soft);overflow-wrap:anywhere}.facts dd{margin:0;overflow-wrap:anywhere;max-width:52rem}
details summary{cursor:pointer;color:var(--link);margin:.8rem 0}
.table>summary{font-size:1.1rem;font-weight:600;margin:.4rem 0}
.lead .source{display:none}.lead figure{margin:0}.lead .chart{font-size:14px}.lead .chart .tick{font-size:13.5px}
@media (min-width:62rem){.lead{display:grid;grid-template-columns:minmax(0,2fr) minmax(0,3fr);gap:0 2.5rem;align-items:start}
.lead .verdict li{display:block}.lead .panels{grid-template-columns:repeat(auto-fit,minmax(min(100%,16rem),1fr));gap:1rem 1.2rem;margin-top:.4rem}}
main>nav{padding:0}main>section:first-child{margin-top:1.6rem}
figure{margin:0 0 3rem}
figcaption p{color:var(--soft);font-size:.9rem}
.panels{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:2rem 2.4rem;margin-top:1.2rem}
.panel{min-width:0}
.chart{display:block;width:100%;height:auto;max-width:46rem;font-size:12px;color:var(--ink);overflow:visible}
.chart text{fill:var(--ink)}.chart .tick{fill:var(--soft);font-size:11px}
.chart .grid{stroke:var(--grid)}.ax{fill:none;stroke:var(--soft)}
.s{color:var(--c)}
@media (prefers-color-scheme:dark){.s{color:color-mix(in oklab,var(--c) 70%,white)}}
)css" + std::string(kSvgMarkStyle) +
         R"css(.hit{fill:transparent}.hit:hover{fill:currentColor;opacity:.5}
.m:hover{opacity:.75}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.1rem 1.1rem;padding:0;margin:.5rem 0 0;font-size:.85rem}
.legend li{display:flex;align-items:center;gap:.45rem}.key{width:22px;height:14px;flex:none}
.readout{min-height:1.6em;font-size:.9rem;color:var(--strong);font-variant-numeric:tabular-nums}
.table{margin:0 0 1rem}
.scroll{overflow:auto;max-height:min(80vh,46rem);border-bottom:1px solid var(--rule)}
.same-note{display:none}
table{border-collapse:separate;border-spacing:0;font-size:.86rem;font-variant-numeric:tabular-nums;line-height:1.4}
th,td{padding:.3rem .7rem;text-align:left;white-space:nowrap;border-bottom:1px solid var(--rule);font-weight:400}
thead th{position:sticky;top:0;background:var(--head);font-weight:600;z-index:2;border-bottom:2px solid var(--rule)}
tbody th,thead th:first-child{position:sticky;left:0;background:var(--head)}
tbody th{z-index:1;font-weight:500}thead th:first-child{z-index:3}
.n{text-align:right}.none{color:var(--soft)}
tbody tr:hover td,tbody tr:hover th{background:var(--band)}
td:target{background:#ffe9a8;color:#1d1f22}
.notes{color:var(--soft);font-size:.85rem;line-height:1.5;padding-left:1.1rem;max-width:60rem;overflow-wrap:anywhere}
footer{color:var(--soft);font-size:.85rem;padding-top:1rem;padding-bottom:4rem}
@media (max-width:40rem){.same{display:none}.same-note{display:block}.chart{font-size:14px}.chart .tick{font-size:12.5px}header{padding-top:2rem}.facts{grid-template-columns:1fr;gap:0}.facts dd{margin-bottom:.6rem}
main>section{margin:2.4rem 0}th,td{padding:.3rem .5rem}}
@page{size:A4 landscape;margin:12mm}
@media print{body{font-size:10pt}header{padding-top:0}.scroll{max-height:none;overflow:visible}nav,.readout,.skip{display:none}
.same{display:none}.same-note{display:block}
figure,.panel,.card,.verdict li,tr{break-inside:avoid}.lead figure{break-inside:auto}h2,h3,h4,figcaption{break-after:avoid}
.panels{grid-template-columns:repeat(auto-fit,minmax(14rem,1fr));gap:.6rem 1rem}table{font-size:6.5pt;width:100%}th,td{white-space:normal;padding:.15rem .25rem}
thead th,tbody th{position:static}}
)css";
}

// A pointer shows a <title> after a while, a finger never: both see it below the figure as well.
std::string page_script() {
  return R"js(
document.querySelectorAll("figure").forEach(function (figure) {
  var out = figure.querySelector(".readout");
  function show(event) {
    var mark = event.target.closest("svg.chart .m, svg.chart .hit, svg.chart .line");
    var title = mark && mark.querySelector("title");
    if (title) out.textContent = title.textContent;
  }
  figure.addEventListener("pointerover", show);
  figure.addEventListener("click", show);
});
// A link into a folded part opens it.
function unfold() {
  var part = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
}
addEventListener("hashchange", unfold);
unfold();
// On paper nothing can be unfolded.
var folded = [];
addEventListener("beforeprint", function () {
  folded = Array.from(document.querySelectorAll("main details:not([open])"));
  folded.forEach(function (part) { part.open = true; });
});
addEventListener("afterprint", function () {
  folded.forEach(function (part) { part.open = false; });
});
)js";
}

std::string base64(const std::vector<unsigned char>& bytes) {
  constexpr const char* kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    unsigned bits = 0;
    for (std::size_t i = 0; i < 3; ++i)
      bits = bits << 8 | (at + i < bytes.size() ? bytes[at + i] : 0U);
    for (std::size_t i = 0; i < 4; ++i)
      text += at + i <= bytes.size() ? kDigits[bits >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

/// What a browser may do with the page: its styles, and the one script with this content.
std::string security_policy(const std::string& script) {
  Sha256 hash;
  hash.update(script);
  const std::string hex = hash.hex();
  std::vector<unsigned char> bytes;
  for (std::size_t at = 0; at < hex.size(); at += 2)
    bytes.push_back(static_cast<unsigned char>(std::stoul(hex.substr(at, 2), nullptr, 16)));
  return fmt::format(
      "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{}'; base-uri 'none'; "
      "form-action 'none'",
      base64(bytes));
}

std::string document_head(const std::string& title) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n"
      "<style>\n{}</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">To the content</a>\n",
      security_policy(page_script()), html_text(title), page_style());
}

/// A part of the page under a heading of its own.
struct Section {
  std::string id, head;
  std::string inside;  ///< HTML; a section without any is left out
};

std::string contents(const std::vector<Section>& sections, const std::vector<Table>& tables) {
  std::string text = "<nav aria-label=\"Contents\"><details><summary>Contents</summary>\n<ul>\n";
  const auto add = [&](const std::string& id, const std::string& name) {
    text += fmt::format("<li><a href=\"#{}\">{}</a></li>\n", id, html_text(name));
  };
  for (const Section& one : sections) {
    if (one.id == "tables")
      for (const Table& table : tables) {
        if (!table.rows.empty()) add("table-" + id_text(table.name), table.title);
      }
    else if (!one.inside.empty())
      add(one.id, one.head);
  }
  return text + "</ul></details></nav>\n";
}

std::string section(const Section& one) {
  if (one.inside.empty()) return "";
  return fmt::format(
      "<section id=\"{0}\" aria-labelledby=\"{0}-head\">\n<h2 "
      "id=\"{0}-head\">{1}</h2>\n{2}</section>\n",
      one.id, one.head, one.inside);
}

std::string fine_line(const std::string& text) {
  return text.empty() ? "" : "<p class=\"source\">" + html_text(text) + "</p>";
}

/// Names of networks and modes are written as they are.
bool begins_with_name(const VerdictClause& clause) {
  const auto begins_with = [&](const std::string& name) { return clause.text.starts_with(name); };
  return std::ranges::any_of(clause.networks, begins_with) ||
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

/// The plot that stands beside the verdict: what synchronization costs where one job measured it,
/// else where an iteration goes.
const NamedChart* lead_plot(const std::vector<NamedChart>& charts) {
  for (const std::string_view name : {"cost", "split"})
    for (const NamedChart& chart : charts)
      if (chart.name == name) return &chart;
  return nullptr;
}

/// What the exchange costs and what would reduce it, beside the plot of it.
std::string answer(const PageContent& content) {
  std::string text = sentences(main_clauses(content.verdict));
  if (const NamedChart* lead = lead_plot(content.charts)) text += page_figure(*lead, 0);
  return text.empty() ? "" : "<div class=\"lead\">\n" + text + "</div>\n";
}

/// The sentences that the answer leaves out.
std::string findings(const std::vector<VerdictClause>& clauses) {
  const auto main = main_clauses(clauses);
  std::vector<VerdictClause> others = clauses;
  std::erase_if(others, [&](const VerdictClause& clause) {
    return contains(main, clause.text, &VerdictClause::text);
  });
  return sentences(others);
}

std::string figures(const std::vector<NamedChart>& charts) {
  std::string text;
  for (std::size_t i = 0; i < charts.size(); ++i)
    if (&charts[i] != lead_plot(charts)) text += page_figure(charts[i], i + 1);
  return text;
}

/// The first one open, the others folded; one without rows has nothing to show.
std::string all_tables(const std::vector<Table>& tables) {
  std::string text;
  for (const Table& table : tables)
    if (!table.rows.empty()) text += page_table(table, text.empty());
  return text;
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

std::string render_page(const RunSet& set, const PageContent& content) {
  const std::string title = content.title.empty() ? study_title(set) : content.title;
  std::string text =
      document_head(title) +
      fmt::format(
          "<header>\n<p class=\"kicker\">What gradient synchronization costs</p>\n"
          "<h1>{}</h1>\n<p class=\"when\">{}, {}</p>\n</header>\n<main id=\"main\">\n",
          html_text(title), count_text(all_runs(set).size(), "run"), html_text(dates(set)));
  const std::vector<Section> sections = {
      {"verdict", "Verdict", answer(content)},
      {"figures", "Key figures", key_figures(set)},
      {"findings", "Further findings", findings(content.verdict)},
      {"plots", "Plots", figures(content.charts)},
      {"tables", "Tables", all_tables(content.tables)},
      {"runs", "Runs", what_was_run(set, content.places)},
      {"computed", "How the numbers are computed", how_computed(content.tables)}};
  // The first section answers the question of the page; contents and warnings come after it.
  for (const Section& one : sections) {
    text += section(one);
    if (&one == &sections.front()) text += contents(sections, content.tables) + remarks(set);
  }
  return text +
         fmt::format(
             "</main>\n<footer><p>Made by gradsync-report, revision {}, from the run files named "
             "above; the same files give the same "
             "page.</p></footer>\n<script>{}</script>\n</body>\n"
             "</html>\n",
             html_text(revision()), page_script());
}

}  // namespace gradsync::report
