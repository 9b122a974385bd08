#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/mode_figures.h"
#include "analysis/tables/run_cells.h"
#include "analysis/tables/tables.h"

namespace gradsync::report {

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

std::vector<Column> modes_columns(const std::vector<std::int64_t>& points) {
  std::vector<Column> result = run_columns();
  result.push_back({"iterations", "iterations", false, "recorded", "/iteration/number"});
  for (const std::int64_t point : points)
    result.push_back({fmt::format("loss_at_{}", point), fmt::format("loss@{}", point), false,
                      "loss of that iteration", "/loss"});
  const auto time = [](const char* name, const char* head, const char* formula) {
    return Column{name, head, false, formula, "/time/iteration"};
  };
  const std::vector<Column> rest = {
      {"loss_mean", "mean loss", false, "sum of samples x loss / sum of samples",
       "/loss, /iteration/samples"},
      {"train_accuracy_percent", "train %", false, "of the last epoch",
       "/epoch/train_accuracy, /correct"},
      {"test_accuracy_percent", "test %", false, "at the last evaluation", "/epoch/test_accuracy"},
      time("iteration_mean_ms", "mean ms", "mean without the first iteration"),
      {"steady_iterations", "n", false, "steady iterations", "/iteration/number"},
      time("iteration_median_ms", "median ms", "median of the steady iterations"),
      time("iteration_median_low_ms", "low", "lower end of the median's 95 % interval"),
      time("iteration_median_high_ms", "high", "upper end of the median's 95 % interval"),
      time("iteration_p95_ms", "p95 ms", "95 % quantile of the steady iterations"),
      time("iteration_p99_ms", "p99 ms", "99 % quantile of the steady iterations"),
      time("iteration_deviation_ms", "sd ms", "standard deviation (n - 1), steady iterations"),
      time("iteration_variation_percent", "cv %", "standard deviation / mean, steady iterations"),
      {"images_per_s", "images/s", false,
       "sum of samples / sum of iteration, without the first iteration",
       "/iteration/samples, /time/iteration"},
      run_name_column()};
  result.insert(result.end(), rest.begin(), rest.end());
  keep(result, {"rank", "loss_mean", "iteration_median_ms", "images_per_s"});
  return result;
}

std::vector<Cell> modes_row(const Run& run, std::size_t rank, const ModeFigures& figures,
                            int decimals) {
  std::vector<Cell> cells = run_cells(run, Cell::count(static_cast<double>(rank)));
  cells.push_back(Cell::count(static_cast<double>(run.reader->iterations())));
  for (const double loss : figures.loss_at)
    cells.push_back(Cell::of(loss, 4));
  cells.push_back(Cell::of(figures.mean_loss, 4));
  cells.push_back(Cell::of(1e2 * figures.train_accuracy, 2));
  cells.push_back(Cell::of(1e2 * figures.test_accuracy, 2));
  cells.push_back(Cell::of(1e3 * figures.mean_s, decimals));
  cells.push_back(Cell::count(static_cast<double>(figures.steady_s.count)));
  for (const double time_s :
       {figures.median_s.value, figures.median_s.low, figures.median_s.high, figures.steady_s.p95,
        figures.steady_s.p99, figures.steady_s.deviation})
    cells.push_back(Cell::of(1e3 * time_s, decimals));
  cells.push_back(Cell::of(1e2 * figures.steady_s.variation, 1));
  cells.push_back(Cell::of(figures.samples_per_s, 1));
  cells.emplace_back(run.name);
  return cells;
}

int modes_decimals_for(const std::vector<RunFigures>& all) {
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

std::vector<std::string> modes_notes(const RunSet& set, const TableOptions& options,
                                     const std::vector<std::int64_t>& points) {
  return {
      loss_note(options, points),
      "mean loss: over all iterations, weighted by samples; train %: last epoch; test %: last "
      "evaluation",
      fmt::format("mean ms, images/s: the first iteration of each run left out; n and the figures "
                  "from median "
                  "to cv: steady iterations, left out: {}",
                  warmup_text(set)),
      "low to high: 95 % interval of the median from order statistics (n of 6 or more); sd: n - 1; "
      "cv: "
      "sd / mean",
      "images/s: samples of the global batch over the rank's iteration time; quantiles: type 7"};
}

}  // namespace

Table make_modes_table(const RunSet& set, const TableOptions& options) {
  const auto points = loss_points(longest_run(set), options.log_every, kMostLossColumns);
  Table table{"modes",
              "Synchronization modes, per rank",
              modes_notes(set, options, points),
              modes_columns(points),
              {}};
  std::vector<RunFigures> all;
  for (const Run& run : set.runs)
    all.push_back({&run, mode_figures(*run.reader, run.steady, points)});
  const int decimals = modes_decimals_for(all);
  for (const RunFigures& figures : all)
    for (const std::size_t rank : figures.run->steady.ranks)
      table.add(modes_row(*figures.run, rank, figures.ranks[rank], decimals),
                figures.run->path.string());
  return table;
}

}  // namespace gradsync::report
