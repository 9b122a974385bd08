#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/metrics/mode_figures.h"
#include "analysis/tables/run_cells.h"
#include "analysis/tables/tables.h"

namespace gradsync {

namespace {

constexpr std::int64_t kMostLossColumns = 10;

struct RunFigures {
  const Run* run;
  std::vector<ModeFigures> ranks;
};

std::int64_t longest_run(const RunSet& set) {
  std::size_t longest = 0;
  for (const Run& run : set.runs)
    longest = std::max(longest, run.reader->iterations());
  return static_cast<std::int64_t>(longest);
}

std::vector<Column> columns(const std::vector<std::int64_t>& points) {
  std::vector<Column> result = run_columns();
  result.push_back({"iterations", "iterations"});
  for (const std::int64_t point : points)
    result.push_back({fmt::format("loss_at_{}", point), fmt::format("loss@{}", point)});
  const std::vector<Column> rest = {
      {"loss_mean", "mean loss"},           {"train_accuracy_percent", "train %"},
      {"test_accuracy_percent", "test %"},  {"iteration_mean_ms", "mean ms"},
      {"iteration_median_ms", "median ms"}, {"iteration_p95_ms", "p95 ms"},
      {"images_per_s", "images/s"},         run_name_column()};
  result.insert(result.end(), rest.begin(), rest.end());
  return result;
}

std::vector<Cell> row(const Run& run, std::size_t rank, const ModeFigures& figures, int decimals) {
  std::vector<Cell> cells = run_cells(run, Cell::count(static_cast<double>(rank)));
  cells.push_back(Cell::count(static_cast<double>(run.reader->iterations())));
  for (const double loss : figures.loss_at)
    cells.push_back(Cell::of(loss, 4));
  cells.push_back(Cell::of(figures.mean_loss, 4));
  cells.push_back(Cell::of(1e2 * figures.train_accuracy, 2));
  cells.push_back(Cell::of(1e2 * figures.test_accuracy, 2));
  cells.push_back(Cell::of(1e3 * figures.mean_s, decimals));
  cells.push_back(Cell::of(1e3 * figures.steady_s.median, decimals));
  cells.push_back(Cell::of(1e3 * figures.steady_s.p95, decimals));
  cells.push_back(Cell::of(figures.samples_per_s, 1));
  cells.emplace_back(run.name);
  return cells;
}

int decimals_for(const std::vector<RunFigures>& all) {
  double largest_s = 0;
  for (const RunFigures& run : all)
    for (const ModeFigures& rank : run.ranks)
      largest_s = std::fmax(largest_s, rank.mean_s);
  return ms_decimals(1e3 * largest_s);
}

std::string loss_note(const TableOptions& options, const std::vector<std::int64_t>& points) {
  if (options.log_every == 0) return "loss@N: none asked for (--log-every 0)";
  const std::int64_t step = points.empty() ? options.log_every : points.front();
  std::string text = fmt::format(
      "loss@N: loss of the rank's own samples in the Nth iteration, counted from 1; every {}",
      step);
  if (step != options.log_every)
    text += fmt::format(" instead of every {}, for at most {} columns", options.log_every,
                        kMostLossColumns);
  return text;
}

std::vector<std::string> notes(const RunSet& set, const TableOptions& options,
                               const std::vector<std::int64_t>& points) {
  std::vector<std::string> result = {
      loss_note(options, points),
      "mean loss: over all iterations, weighted by samples; train %: last epoch; test %: last "
      "evaluation",
      fmt::format(
          "mean ms, images/s: the first iteration of each run left out (n = iterations - 1); "
          "median, p95: left out: {}",
          warmup_text(set)),
      "images/s: samples of the global batch over the rank's iteration time; quantiles: type 7"};
  const auto remarks = remark_notes(set);
  result.insert(result.end(), remarks.begin(), remarks.end());
  return result;
}

}  // namespace

Table make_modes_table(const RunSet& set, const TableOptions& options) {
  const auto points = loss_points(longest_run(set), options.log_every, kMostLossColumns);
  Table table{
      "modes", "Synchronisation modes, per rank", notes(set, options, points), columns(points), {}};
  std::vector<RunFigures> all;
  for (const Run& run : set.runs)
    all.push_back({&run, mode_figures(*run.reader, run.steady, points)});
  const int decimals = decimals_for(all);
  for (const RunFigures& figures : all)
    for (std::size_t rank = 0; rank < figures.ranks.size(); ++rank)
      table.add(row(*figures.run, rank, figures.ranks[rank], decimals), figures.run->path.string());
  return table;
}

}  // namespace gradsync
