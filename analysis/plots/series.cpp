#include "analysis/plots/series.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "analysis/figures/run_group.h"
#include "analysis/plots/run_marks.h"
#include "base/parse.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

constexpr std::size_t kMostPoints = 2000;
constexpr std::size_t kMostSeries = 12;  // of a panel; more cannot be told apart
constexpr double kSteadyQuantile = 0.98;

template <typename Value>
bool differ(const std::vector<const Run*>& runs, Value Run::*field) {
  return std::any_of(runs.begin(), runs.end(),
                     [&](const Run* run) { return run->*field != runs.front()->*field; });
}

/// Every nth of `values`.
std::vector<double> thinned(const std::vector<double>& values, std::size_t step) {
  std::vector<double> kept;
  for (std::size_t i = 0; i < values.size(); i += step)
    kept.push_back(values[i]);
  return kept;
}

// About 20 windows fit into a run, so that the line follows the trend and not the noise. Five at
// least: then one slow first iteration does not bend the beginning of the line.
std::size_t smoothing_window(std::size_t iterations) {
  return 2 * std::clamp<std::size_t>(iterations / 40, 2, 50) + 1;
}

double steady_top(const std::vector<double>& values, const IterationIndex& index) {
  std::vector<double> steady;
  for (std::size_t row = 1; row < values.size(); ++row)
    if (!index.warmup[row]) steady.push_back(values[row]);
  const double top = quantile(steady, kSteadyQuantile);
  return std::isfinite(top) ? top : quantile(values, 1);
}

Series make_series(const Run& run, const std::vector<double>& values) {
  const IterationIndex& index = run.reader->index();
  const std::size_t step = (values.size() + kMostPoints - 1) / kMostPoints;
  std::vector<double> numbers;
  for (const std::int64_t iteration : index.iteration)
    numbers.push_back(static_cast<double>(iteration + 1));
  Series series;
  series.run = &run;
  series.color = mode_color(run.mode);
  series.iteration = thinned(numbers, step);
  series.value = thinned(values, step);
  series.smooth = thinned(moving_median(values, smoothing_window(values.size())), step);
  series.steady_top = steady_top(values, index);
  return series;
}

std::string panel_title(const std::vector<const Run*>& runs) {
  const Run& first = *runs.front();
  std::string title = count_text(first.ranks, "rank");
  const bool scheduled = std::any_of(runs.begin(), runs.end(),
                                     [](const Run* run) { return !batch_schedule(*run).empty(); });
  if (!scheduled && !differ(runs, &Run::batch_global))
    title += ", " + batch_text(first) +
             (first.batch_global > 0 ? fmt::format(" ({} global)", first.batch_global) : "");
  return title;
}

void label(std::vector<Series>& all, const std::vector<const Run*>& runs) {
  const bool models = differ(runs, &Run::model), batches = differ(runs, &Run::batch_global);
  std::map<std::string, int> of_mode, of_label;
  for (Series& series : all) {
    series.label = series.run->mode;
    if (models) series.label += ", " + series.run->model;
    if (!batch_schedule(*series.run).empty())
      series.label += ", " + batch_text(*series.run);
    else if (batches)
      series.label += series.run->batch_global > 0
                          ? fmt::format(", batch {}", series.run->batch_global)
                          : ", unknown batch";
    const int repeat = ++of_label[series.label];
    if (repeat > 1) series.label += fmt::format(", run {}", repeat);
    if (series.run->reader->status() != RunStatus::kComplete)
      series.label += fmt::format(" ({})", series.run->status());
    series.dash = of_mode[series.run->mode]++ % 5 + 1;
  }
}

Panel make_panel(const std::vector<const Run*>& runs, const ValuesOf& values_of) {
  Panel panel;
  std::vector<const Run*> shown;
  for (const Run* run : runs) {
    const std::vector<double> values = values_of(*run->reader);
    if (!std::any_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); }))
      continue;
    if (panel.series.size() == kMostSeries) {
      ++panel.left_out;
      continue;
    }
    panel.series.push_back(make_series(*run, values));
    shown.push_back(run);
  }
  if (shown.empty()) return panel;
  panel.title = panel_title(shown);
  label(panel.series, shown);
  return panel;
}

}  // namespace

std::vector<Panel> make_panels(const RunSet& set, const ValuesOf& values_of) {
  std::map<std::int64_t, std::vector<const Run*>> by_ranks;
  for (const Run& run : set.runs)
    by_ranks[run.ranks].push_back(&run);
  std::vector<Panel> panels;
  for (const auto& [ranks, runs] : by_ranks) {
    Panel panel = make_panel(runs, values_of);
    if (!panel.series.empty()) panels.push_back(std::move(panel));
  }
  return panels;
}

std::string models_text(const RunSet& set) {
  std::set<std::string> models;
  for (const Run& run : set.runs)
    models.insert(run.model);
  return models.size() == 1 ? *models.begin() : fmt::format("{} models", models.size());
}

}  // namespace gradsync::report
