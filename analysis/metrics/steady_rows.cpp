#include "analysis/metrics/steady_rows.h"

#include <algorithm>

#include "analysis/metrics/columns.h"

namespace gradsync {

namespace {

std::vector<bool> by_rule(const IterationIndex& index) {
  std::vector<bool> left_out = index.warmup;
  if (!left_out.empty()) left_out[0] = true;
  return left_out;
}

}  // namespace

SteadyRows steady_rows(RunReader& run) {
  SteadyRows rows;
  rows.warmup = by_rule(run.index());
  rows.by_rule = static_cast<std::size_t>(std::count(rows.warmup.begin(), rows.warmup.end(), true));
  const std::vector<double> slowest = slowest_rank(run, Phase::kIteration);
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

}  // namespace gradsync
