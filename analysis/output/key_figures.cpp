#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "analysis/figures/rank_figures.h"
#include "analysis/figures/run_group.h"
#include "analysis/output/page_parts.h"
#include "analysis/plots/html.h"
#include "analysis/plots/run_marks.h"
#include "base/parse.h"
#include "options/modes.h"
#include "stats/estimate.h"

namespace gradsync::report {

namespace {

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

double exposed_percent(const RunGroup& group) {
  std::vector<SplitFigures> runs;
  for (const Run* run : group.repeats)
    runs.push_back(mean_of(split_figures(*run->reader, run->steady)));
  return mean_of(runs).percent(Phase::kExposed);
}

CellFigures figures_of(const RunGroup& group, const std::string& name) {
  return {&group, name, images_per_s(group), exposed_percent(group)};
}

std::string name_of(const RunGroup& group) {
  const Run& run = group.first();
  return fmt::format("{}, {}, {}, {}", run.model, run.mode, count_text(run.ranks, "rank"),
                     batch_text(run));
}

std::string interval_text(const Estimate& estimate) {
  const std::string count = fmt::format("n = {} iterations", estimate.count);
  if (!std::isfinite(estimate.low + estimate.high)) return count;
  return fmt::format("95 % interval {:.0f} to {:.0f}, {}", estimate.low, estimate.high, count);
}

using Value = double (*)(const CellFigures&);

const CellFigures* largest(const std::vector<CellFigures>& cells, Value value) {
  const CellFigures* best = nullptr;
  for (const CellFigures& cell : cells)
    if (std::isfinite(value(cell)) && (!best || value(cell) > value(*best))) best = &cell;
  return best;
}

void add_rate(std::vector<KeyFigure>& figures, const std::vector<CellFigures>& cells) {
  const CellFigures* best = largest(cells, [](const CellFigures& cell) {
    return core_shortage(*cell.group).empty() ? cell.images_per_s.value : kNotMeasured;
  });
  if (!best || !(best->images_per_s.value > 0)) return;
  figures.push_back({"Highest throughput", fmt::format("{:.0f}", best->images_per_s.value),
                     "images/s", best->name + "; " + interval_text(best->images_per_s),
                     "images / median time of a steady iteration of the slowest rank; with "
                     "--batch-schedule all images / all time; /iteration/samples, "
                     "/time/iteration"});
}

/// The cell, with the reservation of runs whose communication contains waiting.
std::string where_exposed(const CellFigures& cell) {
  const auto& repeats = cell.group->repeats;
  const bool apart = std::all_of(repeats.begin(), repeats.end(),
                                 [](const Run* run) { return waits_apart(*run->reader); });
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

}  // namespace

std::string key_figures(const RunSet& set) {
  const auto groups = group_runs(set);
  std::vector<CellFigures> cells;
  std::vector<std::string> names;
  for (const RunGroup& group : groups)
    names.push_back(name_of(group));
  names = told_apart(std::move(names), pointers_to(groups), ", ", " ({})");
  for (std::size_t i = 0; i < groups.size(); ++i)
    cells.push_back(figures_of(groups[i], names[i]));
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

}  // namespace gradsync::report
