#include "analysis/read/steady_rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/read/columns.h"

namespace gradsync::report {

namespace {

std::vector<bool> by_rule(const RunReader& run) {
  std::vector<bool> left_out = run.index().warmup;
  if (left_out.size() > (is_traced(run.info()) ? 1U : 0U)) left_out[0] = true;
  return left_out;
}

/// The slowest rank of each iteration; counts what is missing.
std::vector<double> series_of(RunReader& run, SteadyRows& rows) {
  std::vector<double> slowest(run.iterations(), kNotMeasured);
  std::vector<std::size_t> missing(run.ranks(), 0);
  for_each_row(run, phase_blocks(Phase::kIteration),
               [&](std::size_t row, std::span<const double> values) {
                 for (std::size_t rank = 0; rank < values.size(); ++rank) {
                   slowest[row] = std::fmax(slowest[row], values[rank]);
                   missing[rank] += std::isfinite(values[rank]) ? 0 : 1;
                 }
               });
  for (std::size_t rank = 0; rank < missing.size(); ++rank) {
    rows.missing += missing[rank];
    if (missing[rank] > 0) rows.missing_ranks.push_back(rank);
    if (missing[rank] < slowest.size()) rows.ranks.push_back(rank);
  }
  if (rows.ranks.empty()) {
    rows.ranks.resize(run.ranks());
    std::iota(rows.ranks.begin(), rows.ranks.end(), std::size_t{0});
  }
  return slowest;
}

}  // namespace

SteadyRows steady_rows(RunReader& run) {
  SteadyRows rows;
  rows.warmup = by_rule(run);
  rows.by_rule = static_cast<std::size_t>(std::count(rows.warmup.begin(), rows.warmup.end(), true));
  const std::vector<double> slowest = series_of(run, rows);
  // A run may flag iterations in its middle, as after a resumption: the series is of the others.
  std::vector<double> series;
  std::vector<std::size_t> row_of;
  for (std::size_t row = 0; row < slowest.size(); ++row) {
    if (rows.warmup[row]) continue;
    series.push_back(slowest[row]);
    row_of.push_back(row);
  }
  const SteadyState state = steady_state(series);
  rows.verdict = state.verdict;
  rows.by_test = state.first;
  if (!row_of.empty()) rows.first = row_of[state.first];
  return rows;
}

}  // namespace gradsync::report
