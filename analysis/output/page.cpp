// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/output/page.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <regex>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/figures/comparisons.h"
#include "analysis/figures/rank_figures.h"
#include "analysis/figures/run_group.h"
#include "analysis/plots/run_marks.h"
#include "analysis/plots/svg.h"
#include "analysis/tables/columns.h"
#include "base/hash.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "base/version.h"
#include "options/modes.h"
#include "stats/estimate.h"

namespace gradsync::report {

namespace {

// Files beside this one, as literals (config/build.mk).
constexpr std::string_view kPage =
#include "build/embedded/analysis/output/page.html"
    ;
constexpr std::string_view kStyle =
#include "build/embedded/analysis/output/page.css"
    ;
constexpr std::string_view kScript =
#include "build/embedded/analysis/output/page.js"
    ;
constexpr std::string_view kComputed =
#include "build/embedded/analysis/output/computed.html"
    ;

constexpr std::size_t kMostValues = 6;

using Texts = std::set<std::string>;
using TextsOf = std::function<void(const Run&, Texts&)>;

Texts all_of(const RunSet& set, const TextsOf& texts_of) {
  Texts texts;
  for (const Run* run : all_runs(set))
    texts_of(*run, texts);
  texts.erase("");
  return texts;
}

std::string joined(const Texts& texts) {
  std::string text;
  std::size_t count = 0;
  for (const std::string& one : texts) {
    if (++count > kMostValues)
      return text + fmt::format("; and {} more", texts.size() - kMostValues);
    text += (text.empty() ? "" : "; ") + one;
  }
  return text;
}

std::string line(const RunSet& set, const std::string& name, const TextsOf& texts_of) {
  const Texts texts = all_of(set, texts_of);
  if (texts.empty()) return "";
  return fmt::format("<dt>{}</dt><dd{}>{}</dd>\n", html_text(name),
                     texts.size() > 1 ? " class=\"differs\"" : "", html_text(joined(texts)));
}

TextsOf option(const char* name) {
  return [name](const Run& run, Texts& texts) { texts.insert(run.reader->option(name)); };
}

TextsOf recorded(const char* name) {
  return [name](const Run& run, Texts& texts) { texts.insert(provenance_of(*run.reader, name)); };
}

TextsOf places(std::string RankPlace::*field) {
  return [field](const Run& run, Texts& texts) {
    for (const RankPlace& place : run.reader->info().topology)
      texts.insert(place.*field);
  };
}

std::string facts(const RunSet& set, bool with_hosts) {
  std::string text = "<dl class=\"facts\">\n";
  if (with_hosts)
    text += line(set, "Hosts", places(&RankPlace::host));
  else
    text +=
        fmt::format("<dt>Hosts</dt><dd>{}</dd>\n", all_of(set, places(&RankPlace::host)).size());
  text += line(set, "Devices", places(&RankPlace::device));
  text += line(set, "Threads per rank", [](const Run& run, Texts& texts) {
    for (const RankPlace& place : run.reader->info().topology)
      if (place.threads > 0) texts.insert(std::to_string(place.threads));
  });
  text += line(set, "Model", [](const Run& run, Texts& texts) { texts.insert(run.model); });
  text += line(set, "Data", recorded("data_name"));
  text += line(set, "Precision", option("precision"));
  for (const auto& [name, key] :
       std::initializer_list<std::pair<const char*, const char*>>{{"Program", "program"},
                                                                  {"Compiler", "compiler"},
                                                                  {"LibTorch", "libtorch"},
                                                                  {"MPI", "mpi"},
                                                                  {"NCCL", "nccl"},
                                                                  {"CUDA", "cuda"},
                                                                  {"HDF5", "hdf5"}})
    text += line(set, name, recorded(key));
  return text +
         "</dl>\n<p class=\"fine\">Where a line names several values, the runs differ in "
         "it.</p>\n";
}

std::string run_row(const Run& run) {
  const std::string batch = run.batch_per_rank > 0 ? std::to_string(run.batch_per_rank) : "n/a";
  return fmt::format(
      "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td class=\"n\">{}</td>"
      "<td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td><td>{}</td><td><code>{}</code></td>"
      "</tr>\n",
      html_text(run.name), html_text(run.model), html_text(run.mode), run.ranks, batch,
      run.reader->iterations(), html_text(run.status()), html_text(run.reader->info().created),
      html_text(run.path.string()));
}

std::string run_list(const RunSet& set) {
  const auto runs = all_runs(set);
  std::string text = fmt::format(
      "<details><summary>The {}</summary>\n<div class=\"scroll\" tabindex=\"0\" "
      "role=\"region\" aria-label=\"List of runs\"><table>\n<thead><tr><th scope=\"col\">run</th>"
      "<th scope=\"col\">model</th><th scope=\"col\">mode</th><th scope=\"col\" class=\"n\">ranks"
      "</th><th scope=\"col\" class=\"n\">batch/rank</th><th scope=\"col\" class=\"n\">iterations"
      "</th><th scope=\"col\">status</th><th scope=\"col\">begun (UTC)</th><th scope=\"col\">file"
      "</th></tr></thead>\n<tbody>\n",
      count_text(runs.size(), "run"));
  for (const Run* run : runs)
    text += run_row(*run);
  return text + "</tbody></table></div></details>\n";
}

/// "4 ranks" or "1 to 4 ranks".
std::string ranks_span(const RunSet& set) {
  const auto runs = all_runs(set);
  const auto [least, most] = std::ranges::minmax_element(runs, {}, &Run::ranks);
  if ((*least)->ranks == (*most)->ranks) return count_text((*most)->ranks, "rank");
  return fmt::format("{} to {} ranks", (*least)->ranks, (*most)->ranks);
}

std::string study_title(const RunSet& set) {
  const Texts models = all_of(set, [](const Run& run, Texts& texts) { texts.insert(run.model); });
  const Texts modes = all_of(set, [](const Run& run, Texts& texts) { texts.insert(run.mode); });
  const std::string what =
      modes.size() == 1 ? *modes.begin() : fmt::format("{} modes", modes.size());
  return fmt::format("{}: {} on {}", fmt::join(models, ", "), what, ranks_span(set));
}

struct KeyFigure {
  std::string head, value, unit;
  std::string where;    ///< which runs, n and interval
  std::string formula;  ///< and data set
};

/// One cell of the study: its rate and how much of it waits for communication.
struct CellFigures {
  const RunGroup* group;
  std::string name;
  Estimate images_per_s;
  double exposed_percent = kNotMeasured;
};

std::string name_of(const RunGroup& group) {
  const Run& run = group.first();
  return fmt::format("{}, {}, {}, {}", run.model, run.mode, count_text(run.ranks, "rank"),
                     batch_text(run));
}

std::string rate_text(double images_per_s) {
  return images_per_s < 100 ? significant_cell(images_per_s).shown()
                            : fmt::format("{:.0f}", images_per_s);
}

std::string interval_text(const Estimate& estimate) {
  const std::string count = "n = " + count_text(estimate.count, "iteration");
  if (!std::isfinite(estimate.low + estimate.high)) return count;
  return fmt::format("95 % interval {} to {}, {}", rate_text(estimate.low),
                     rate_text(estimate.high), count);
}

using Value = double (*)(const CellFigures&);

const CellFigures* largest(const std::vector<CellFigures>& cells, Value value) {
  const CellFigures* best = nullptr;
  for (const CellFigures& cell : cells)
    if (std::isfinite(value(cell)) && (!best || value(cell) > value(*best))) best = &cell;
  return best;
}

/// Time for one image over that of another cell; NaN where a batch is not one number.
Estimate ratio_per_image(const RunGroup& above, const RunGroup& below) {
  for (const RunGroup* group : {&above, &below})
    if (group->first().batch_global < 1 || !batch_schedule(group->first()).empty()) return {};
  TimeRatio ratio = time_ratio(above, below);
  if (ratio.jobs > 0) return ratio.estimate();
  const double images = static_cast<double>(below.first().batch_global) /
                        static_cast<double>(above.first().batch_global);
  for (double* value : {&ratio.value, &ratio.low, &ratio.high})
    *value *= images;
  return ratio.estimate();
}

/// Whether the images of a second are those of a training: ranks that exchange nothing train a
/// network each.
bool has_rate(const CellFigures& cell) {
  const Run& run = cell.group->first();
  return (run.ranks == 1 || mode_named(run.mode).exchanges) && is_recorded(run) &&
         core_shortage(*cell.group).empty();
}

/// Which cells of the same network `best` is not known to be faster than; empty if it is known.
std::string rate_reservation(const CellFigures& best, const std::vector<CellFigures>& cells) {
  constexpr std::size_t kMostNames = 3;
  std::vector<RunGroup> groups;
  std::vector<std::string> tied, lower, untested;
  for (const CellFigures& cell : cells)
    groups.push_back(*cell.group);
  const Run& run = best.group->first();
  const RunSpread spread = run_spreads(groups)[run.model];
  // Cells of the same work go by their modes.
  const auto name_beside_best = [&](const CellFigures& cell) {
    const Run& other = cell.group->first();
    return other.ranks == run.ranks && other.batch_global == run.batch_global &&
                   other.mode != run.mode
               ? other.mode
               : cell.name;
  };
  for (const CellFigures& cell : cells) {
    if (&cell == &best || cell.group->first().model != run.model || !has_rate(cell)) continue;
    const Difference difference = difference_of(ratio_per_image(*cell.group, *best.group), spread);
    if (difference == Difference::kNone || difference == Difference::kWithinSpread)
      tied.push_back(name_beside_best(cell));
    else if (difference == Difference::kFaster)
      lower.push_back(name_beside_best(cell));
    else if (difference != Difference::kSlower)
      untested.push_back(name_beside_best(cell));
  }
  std::string text;
  for (const auto& [names, text_before] : {std::pair{&tied, "not significantly higher than"},
                                           {&lower, "by the interval of their ratio lower than"},
                                           {&untested, "not tested against"}}) {
    if (names->empty()) continue;
    const std::size_t more = names->size() - std::min(names->size(), kMostNames);
    names->resize(names->size() - more);
    text += fmt::format("; {} {}{}", text_before, fmt::join(*names, " / "),
                        more > 0 ? fmt::format(" / {} more", more) : "");
  }
  return text;
}

void add_rate(std::vector<KeyFigure>& figures, const std::vector<CellFigures>& cells) {
  const CellFigures* best = largest(cells, [](const CellFigures& cell) {
    return has_rate(cell) ? cell.images_per_s.value : kNotMeasured;
  });
  if (!best || !(best->images_per_s.value > 0)) return;
  figures.push_back(
      {"Highest throughput", rate_text(best->images_per_s.value), "images/s",
       best->name + "; " + interval_text(best->images_per_s) + rate_reservation(*best, cells),
       "images / median time of a steady iteration of the slowest rank; with "
       "--batch-schedule all images / all time; /iteration/samples, "
       "/time/iteration"});
}

/// The cell, with the reservation of runs whose communication contains waiting.
std::string where_exposed(const CellFigures& cell) {
  const auto& repeats = cell.group->repeats;
  const bool apart =
      std::ranges::all_of(repeats, [](const Run* run) { return waits_apart(*run->reader); });
  return apart ? cell.name : cell.name + "; contains waiting for late ranks (schema 1)";
}

void add_exposed(std::vector<KeyFigure>& figures, const std::vector<CellFigures>& cells) {
  const auto exchanging = [](const CellFigures& cell) {
    const Run& run = cell.group->first();
    const bool judged =
        run.ranks > 1 && mode_named(run.mode).exchanges && core_shortage(*cell.group).empty();
    return judged ? cell.exposed_percent : kNotMeasured;
  };
  const CellFigures* most = largest(cells, exchanging);
  if (!most) return;
  const std::string formula =
      "mean exposed / mean iteration, over ranks and steady iterations; /time/exposed, "
      "/time/iteration";
  figures.push_back({"Highest exposed communication", fmt::format("{:.1f}", exchanging(*most)),
                     "% of the iteration", where_exposed(*most), formula});
  const CellFigures* least = most;
  for (const CellFigures& cell : cells)
    if (exchanging(cell) < exchanging(*least)) least = &cell;
  if (least == most) return;
  figures.push_back({"Lowest exposed communication", fmt::format("{:.1f}", exchanging(*least)),
                     "% of the iteration", where_exposed(*least), formula});
}

double best_test_accuracy(const Run& run) {
  double best = kNotMeasured;
  for (const EpochRow& epoch : run.reader->epochs())
    for (const RankEpoch& rank : epoch.ranks)
      best = std::fmax(best, rank.test_accuracy);
  return best;
}

void add_accuracy(std::vector<KeyFigure>& figures, const std::vector<CellFigures>& cells) {
  const CellFigures* of_best = nullptr;
  double best = kNotMeasured;
  for (const CellFigures& cell : cells)
    for (const Run* run : cell.group->repeats)
      if (const double accuracy = best_test_accuracy(*run);
          std::isfinite(accuracy) && !(accuracy <= best)) {
        of_best = &cell;
        best = accuracy;
      }
  if (!of_best) return;
  figures.push_back({"Best test accuracy", fmt::format("{:.2f}", 1e2 * best), "%", of_best->name,
                     "largest over ranks and epochs; /epoch/test_accuracy"});
}

std::string card(const KeyFigure& figure) {
  return fmt::format(
      "<div class=\"card\" title=\"{}\"><dt>{}</dt><dd><span class=\"big\">{}</span> {}</dd>"
      "<dd class=\"where\">{}</dd></div>\n",
      html_text(figure.formula), html_text(figure.head), html_text(figure.value),
      html_text(figure.unit), html_text(figure.where));
}

std::string claim_title(const Table& table, std::size_t row, std::size_t column) {
  const Column& about = table.columns[column];
  std::string text = about.name;
  if (!about.formula.empty()) text += " = " + about.formula;
  if (!about.dataset.empty()) text += "; data set: " + about.dataset;
  if (row < table.sources.size() && !table.sources[row].empty())
    text += "; file: " + table.sources[row];
  return text;
}

/// By column, whether all rows say the same there. A narrow window says it below the table.
using Sameness = std::vector<bool>;

Sameness sameness(const Table& table) {
  Sameness same(table.columns.size(), table.rows.size() > 1);
  for (std::size_t column = 0; column < same.size(); ++column)
    for (const auto& row : table.rows)
      same[column] =
          same[column] && column > 0 && row[column].shown() == table.rows.front()[column].shown();
  return same;
}

std::string class_of(std::initializer_list<std::pair<bool, const char*>> classes) {
  std::string names;
  for (const auto& [has, name] : classes)
    if (has) names += (names.empty() ? "" : " ") + std::string(name);
  return names.empty() ? "" : fmt::format(" class=\"{}\"", names);
}

std::string cell(const Table& table, std::size_t row, std::size_t column, bool same) {
  const Cell& value = table.rows[row][column];
  const std::string shown = html_text(value.shown());
  if (!value.is_number())
    return column == 0
               ? "<th scope=\"row\">" + shown + "</th>"
               : fmt::format("<td{}>{}</td>",
                             class_of({{!table.columns[column].left, "n"}, {same, "same"}}), shown);
  const std::string exact = std::isfinite(value.number) ? machine_number(value.number) : "";
  return fmt::format("<td{} id=\"{}\" data-value=\"{}\" title=\"{}\">{}</td>",
                     class_of({{true, "n"}, {exact.empty(), "none"}, {same, "same"}}),
                     number_id(table, row, column), exact,
                     html_text(claim_title(table, row, column)), shown);
}

std::string head_row(const Table& table, const Sameness& same) {
  std::string text = "<thead><tr>";
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const Column& column = table.columns[i];
    text += fmt::format("<th scope=\"col\"{} title=\"{}\">{}</th>",
                        class_of({{!column.left, "n"}, {same[i], "same"}}), html_text(column.name),
                        html_text(column.head));
  }
  return text + "</tr></thead>\n";
}

/// What a narrow window has in place of the columns that say the same in all rows.
std::string same_note(const Table& table, const Sameness& same) {
  std::string text;
  for (std::size_t i = 0; i < same.size(); ++i)
    if (same[i])
      text += fmt::format("{}{} {}", text.empty() ? "" : "; ", table.columns[i].head,
                          table.rows.front()[i].shown());
  return text.empty() ? ""
                      : "<p class=\"fine same-note\">In all rows: " + html_text(text) + ".</p>\n";
}

std::string body(const Table& table, const Sameness& same) {
  std::string text = "<tbody>\n";
  const std::size_t rows = std::min(table.rows.size(), kMostPageRows);
  for (std::size_t row = 0; row < rows; ++row) {
    text += "<tr>";
    for (std::size_t column = 0; column < table.columns.size(); ++column)
      text += cell(table, row, column, same[column]);
    text += "</tr>\n";
  }
  return text + "</tbody>";
}

std::string notes(const Table& table) {
  std::string text;
  if (table.rows.size() > kMostPageRows)
    text += fmt::format("<li>{} not shown here; --format csv writes all rows</li>\n",
                        count_text(table.rows.size() - kMostPageRows, "more row"));
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
  const Sameness same = sameness(table);
  return fmt::format(
             "<details class=\"table\" id=\"table-{0}\"{2}>\n<summary>{1}</summary>\n<div "
             "class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{1}\"><table>\n",
             id_text(table.name), html_text(table.title), open ? " open" : "") +
         head_row(table, same) + body(table, same) + "</table></div>\n" + same_note(table, same) +
         notes(table) + "</details>\n";
}

std::string how_computed(const std::vector<Table>& tables) {
  std::string text(kComputed);
  for (const Table& table : tables)
    text += formulas_of(table);
  return text;
}

/// With the look of marks in place of its @import.
std::string page_style() {
  constexpr std::string_view kMarks = "@import \"../plots/marks.css\";\n";
  std::string style(kStyle);
  return style.replace(style.find(kMarks), kMarks.size(), kSvgMarkStyle);
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
std::string security_policy(std::string_view script) {
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

/// A sentence: with a capital, a full stop, percent signs that stay beside their numbers, and
/// options that stay on a line.
std::string sentence(const VerdictClause& clause) {
  const std::string& text = clause.text;
  std::string result;
  for (std::size_t at = 0; at < text.size(); ++at)
    result += text.compare(at, 2, " %") == 0 ? "\xC2\xA0" : text.substr(at, 1);
  if (!begins_with_name(clause) && !result.empty() && result[0] >= 'a' && result[0] <= 'z')
    result[0] = static_cast<char>(result[0] - 'a' + 'A');
  static const std::regex option(" (--[a-z0-9-]+)");
  return std::regex_replace(html_text(result), option, " <span class=\"whole\">$1</span>") + ".";
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

std::string key_figures(const RunSet& set) {
  const auto groups = group_runs(set);
  GroupSplits splits(groups);
  std::vector<CellFigures> cells;
  std::vector<std::string> names =
      each(groups, [](const RunGroup& group) { return name_of(group); });
  names = told_apart(std::move(names), pointers_to(groups), ", ", " ({})");
  for (std::size_t i = 0; i < groups.size(); ++i)
    cells.push_back({&groups[i], names[i], images_per_s(groups[i]),
                     splits.measured(groups[i]).percent(Phase::kExposed)});
  std::vector<KeyFigure> figures;
  add_rate(figures, cells);
  add_exposed(figures, cells);
  add_accuracy(figures, cells);
  if (figures.empty()) return "<p>The runs hold no numbers for them.</p>\n";
  std::string text = "<dl class=\"cards\">\n";
  for (const KeyFigure& figure : figures)
    text += card(figure);
  return text + "</dl>\n";
}

std::string render_page(const RunSet& set, const PageContent& content) {
  const std::vector<Section> sections = {
      {"verdict", "Verdict", answer(content)},
      {"figures", "Key figures", key_figures(set)},
      {"findings", "Further findings", findings(content.verdict)},
      {"plots", "Plots", figures(content.charts)},
      {"tables", "Tables", all_tables(content.tables)},
      {"runs", "Runs", facts(set, content.places) + run_list(set)},
      {"computed", "How the numbers are computed", how_computed(content.tables)}};
  // The first section answers the question of the page; contents and warnings come after it.
  std::string inside;
  for (const Section& one : sections) {
    inside += section(one);
    if (&one == &sections.front()) inside += contents(sections, content.tables) + remarks(set);
  }
  const std::string title = content.title.empty() ? study_title(set) : content.title;
  return fmt::format(fmt::runtime(kPage), fmt::arg("policy", security_policy(kScript)),
                     fmt::arg("title", html_text(title)), fmt::arg("style", page_style()),
                     fmt::arg("runs", count_text(all_runs(set).size(), "run")),
                     fmt::arg("dates", html_text(dates(set))), fmt::arg("sections", inside),
                     fmt::arg("revision", html_text(revision())), fmt::arg("script", kScript));
}

}  // namespace gradsync::report
