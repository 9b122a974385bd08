// SPDX-License-Identifier: BSD-3-Clause
#include "options/modes.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/figures/comparisons.h"
#include "analysis/figures/rank_figures.h"
#include "analysis/tables/columns.h"
#include "analysis/tables/tables.h"
#include "base/ranges.h"

namespace gradsync::report {

namespace {

constexpr const char* kTimes = "/time/iteration";
constexpr std::int64_t kMostLossColumns = 10;

/// A rank of a run, as published comparisons of modes show it.
struct ModeRow : RankRow {
  std::size_t iterations = 0;
  ModeFigures figures = {};
};

TableColumns<ModeRow> mode_columns(const std::vector<std::int64_t>& points, int decimals) {
  using Row = ModeRow;
  const auto time = [&](const char* name, const char* head, const char* formula, auto time_s) {
    return RowColumn<Row>(name, head, formula, kTimes,
                          [=](const Row& row) { return ms_cell(time_s(row.figures), decimals); });
  };
  TableColumns<Row> columns = rank_columns();
  columns.add({{"iterations", "iterations", "recorded", "/iteration/number",
                [](const Row& row) { return count_cell(row.iterations); }}});
  for (std::size_t i = 0; i < points.size(); ++i)
    columns.add({{fmt::format("loss_at_{}", points[i]), fmt::format("loss@{}", points[i]),
                  "loss of that iteration", "/loss",
                  [i](const Row& row) { return Cell::of(row.figures.loss_at[i], 4); }}});
  columns.add(
      {{"loss_mean", "mean loss", "sum of samples x loss / sum of samples",
        "/loss, /iteration/samples",
        [](const Row& row) { return Cell::of(row.figures.mean_loss, 4); }, 0},
       {"train_accuracy_percent", "train %", "of the last epoch", "/epoch/train_accuracy, /correct",
        [](const Row& row) { return percent_cell(row.figures.train_accuracy, 2); }},
       {"test_accuracy_percent", "test %", "at the last evaluation", "/epoch/test_accuracy",
        [](const Row& row) { return percent_cell(row.figures.test_accuracy, 2); }},
       time("iteration_mean_ms", "mean ms", "mean without the first iteration",
            [](const ModeFigures& one) { return one.mean_s; }),
       {"steady_iterations", "n", "steady iterations", "/iteration/number",
        [](const Row& row) { return count_cell(row.figures.steady_s.count); }},
       {"iteration_median_ms", "median ms", "median of the steady iterations", kTimes,
        Ends{"{} end of the median's 95 % interval"},
        [=](const Row& row, End end) { return ms_cell(row.figures.median_s.*end, decimals); }, 0},
       time("iteration_p95_ms", "p95 ms", "95 % quantile of the steady iterations",
            [](const ModeFigures& one) { return one.steady_s.p95; }),
       time("iteration_p99_ms", "p99 ms", "99 % quantile of the steady iterations",
            [](const ModeFigures& one) { return one.steady_s.p99; }),
       time("iteration_deviation_ms", "sd ms", "standard deviation (n - 1), steady iterations",
            [](const ModeFigures& one) { return one.steady_s.deviation; }),
       {"iteration_variation_percent", "cv %", "standard deviation / mean, steady iterations",
        kTimes, [](const Row& row) { return percent_cell(row.figures.steady_s.variation); }},
       {"images_per_s", "images/s",
        "sum of samples / sum of iteration, without the first iteration",
        "/iteration/samples, /time/iteration",
        [](const Row& row) { return Cell::of(row.figures.samples_per_s, 1); }, 0}});
  return columns.add(name_column());
}

std::int64_t longest_run(const RunSet& set) {
  std::size_t longest = 0;
  for (const Run& run : set.runs)
    longest = std::max(longest, run.reader->iterations());
  return static_cast<std::int64_t>(longest);
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

}  // namespace

Table make_modes_table(const RunSet& set, const TableOptions& options) {
  const auto points = loss_points(longest_run(set), options.log_every, kMostLossColumns);
  std::vector<std::pair<ModeRow, std::string>> rows;
  double largest_s = 0;
  for (const Run& run : set.runs) {
    const auto ranks = mode_figures(*run.reader, run.steady, points);
    for (const ModeFigures& rank : ranks)
      largest_s = std::fmax(largest_s, rank.mean_s);
    for (const std::size_t rank : run.steady.ranks)
      rows.push_back({{rank_row(run, rank), run.reader->iterations(), ranks[rank]}, run.path});
  }
  const auto columns = mode_columns(points, ms_decimals(1e3 * largest_s));
  Table table = columns.table(
      "modes", "Synchronization modes, per rank",
      {loss_note(options, points),
       "mean loss: over all iterations, weighted by samples; train %: last epoch; test %: last "
       "evaluation",
       fmt::format("mean ms, images/s: the first iteration of each run left out; n and the figures "
                   "from median to cv: steady iterations, left out: {}",
                   warmup_text(set)),
       "low to high: 95 % interval of the median from order statistics (n of 6 or more); sd: n - "
       "1; cv: sd / mean",
       "images/s: samples of the global batch over the rank's iteration time; quantiles: type 7"});
  for (const auto& [row, source] : rows)
    table.add(columns.cells(row), source);
  return table;
}

namespace {

/// A group against the first of its work that exchanges gradients.
struct PairedRow : CellRow {
  Estimate iteration_s = {};
  std::string against = "-";
  TimeRatio ratio = {};
  std::string verdict = {};
};

TableColumns<PairedRow> paired_columns(const GroupLabels& labels) {
  using Row = PairedRow;
  const auto time = [](double time_s, const Row& row) {
    return ms_cell(time_s, ms_decimals(1e3 * row.iteration_s.value));
  };
  TableColumns<Row> columns = labels.columns();
  columns.add(repeats_column());
  columns.add(
      {{"iterations", "n", "steady iterations of all repeats, of local-sgd its periods",
        "/iteration/number", [](const Row& row) { return count_cell(row.iteration_s.count); }},
       {"iteration_median_ms", "median ms", "median over n of the slowest rank", kTimes,
        Ends{"{} end of the median's 95 % interval"},
        [=](const Row& row, End end) { return time(row.iteration_s.*end, row); }, 0},
       {"against", "against", kLabel, &Row::against},
       {"ratio", "ratio", "time / time of the mode it is compared with", kTimes,
        Ends{"{} end of the ratio's 95 % interval"},
        [](const Row& row, End end) { return Cell::of(row.ratio.*end, 3); }, 0},
       {"ratio_over", "over", kLabel, [](const Row& row) { return row.ratio.basis; }},
       {"verdict", "verdict", &Row::verdict, 0}});
  return columns.add(name_column());
}

/// Modes are set against each other only where all is equal that changes the time of an iteration,
/// but what is the mode's own.
bool same_but_mode(const Run& a, const Run& b) {
  using enum OptionRole;
  static const auto rest = options_of({kBetweenRanks, kStep, kMachine});
  return is_known_work(a) && a.model == b.model && a.ranks == b.ranks &&
         a.batch_global == b.batch_global && a.batch_per_rank == b.batch_per_rank &&
         conditions_of(a, rest) == conditions_of(b, rest);
}

/// The first such group that exchanges gradients: the set is in the order of the modes.
const RunGroup* reference_of(const RunGroup& group, const std::vector<RunGroup>& groups) {
  const auto found = std::ranges::find_if(groups, [&](const RunGroup& other) {
    return mode_named(other.first().mode).exchanges && same_but_mode(group.first(), other.first());
  });
  return found == groups.end() ? nullptr : &*found;
}

/// "allreduce", with its settings where they are not the group's.
std::string reference_text(const RunGroup& reference, const RunGroup& group) {
  const std::string settings =
      settings_text(reference.first(), differing_options({&reference, &group}));
  return settings.empty() ? reference.first().mode
                          : fmt::format("{} ({})", reference.first().mode, settings);
}

/// A group against its reference. Times that include waiting for a core call no mode slower.
void compare(const RunGroup& group, const RunGroup& reference, const RunSpread& spread,
             PairedRow& row) {
  row.ratio = time_ratio(group, reference);
  for (const RunGroup* one : {&group, &reference})
    if (const std::string_view shortage = core_shortage(*one); !shortage.empty()) {
      row.verdict = shortage;
      return;
    }
  row.verdict = difference_text(difference_of(row.ratio, spread));
}

std::vector<std::string> paired_notes(const RunSet& set, const RunSpreads& spreads) {
  std::vector<std::string> result = {
      fmt::format("each mode against the first one of the same model, ranks, batch, options, "
                  "devices and hosts that exchanges gradients (the order is {})",
                  fmt::join(each(kModes, &Mode::name), ", ")),
      "an iteration counts as its slowest rank; the repeats of a cell are merged", kRatioNote,
      "95 % interval of the median over the iterations of its runs: from order statistics",
      fmt::format("left out: {}", warmup_text(set))};
  for (const auto& [model, spread] : spreads)
    result.push_back(
        spread.known()
            ? spread_text(spread, model) + "; smaller differences between single starts are noise"
            : fmt::format("{}: no two runs of the same work, so their spread is unknown", model));
  return result;
}

}  // namespace

Table make_modes_paired_table(const RunSet& set, const TableOptions&) {
  const auto groups = group_runs(set);
  const GroupLabels labels(groups);
  const RunSpreads spreads = run_spreads(groups);
  const auto columns = paired_columns(labels);
  Table table = columns.table("modes-paired", "Synchronization modes against each other",
                              paired_notes(set, spreads));
  for (const RunGroup& group : groups) {
    PairedRow row{labels.row(group), median_estimate(steady_values(group, Phase::kIteration))};
    std::string sources = sources_of(group);
    const RunGroup* reference = reference_of(group, groups);
    if (reference != nullptr) row.against = reference_text(*reference, group);
    if (reference == nullptr || reference == &group) {
      row.verdict = reference == nullptr ? "alone" : "reference";
    } else {
      compare(group, *reference, spreads.at(row.model), row);
      sources += ", " + sources_of(*reference);
    }
    table.add(columns.cells(row), sources);
  }
  return table;
}

}  // namespace gradsync::report
