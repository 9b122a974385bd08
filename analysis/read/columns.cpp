// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/read/columns.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/read/run_set.h"
#include "base/parse.h"
#include "options/modes.h"
#include "options/option_roles.h"

namespace gradsync::report {

namespace {

constexpr std::size_t kBlockBytes = 16U << 20;

}  // namespace

MatrixBlocks phase_blocks(Phase phase) {
  return [phase](RunReader& run, std::size_t first, std::size_t count) {
    return run.time(phase, first, count);
  };
}

MatrixBlocks loss_blocks() {
  return
      [](RunReader& run, std::size_t first, std::size_t count) { return run.loss(first, count); };
}

void for_each_block(const RunReader& run, std::size_t columns,
                    const std::function<void(std::size_t, std::size_t)>& visit) {
  const std::size_t row_bytes = std::max<std::size_t>(1, columns) * sizeof(double);
  const std::size_t most = std::max<std::size_t>(1, kBlockBytes / row_bytes);
  for (std::size_t first = 0; first < run.iterations(); first += most)
    visit(first, std::min(most, run.iterations() - first));
}

void for_each_row(RunReader& run, const MatrixBlocks& blocks,
                  const std::function<void(std::size_t, std::span<const double>)>& visit) {
  for_each_block(run, run.ranks(), [&](std::size_t first, std::size_t count) {
    const Matrix block = blocks(run, first, count);
    for (std::size_t row = 0; row < count; ++row)
      visit(first + row, block.row(row));
  });
}

std::vector<double> rank_means(RunReader& run, const SteadyRows& steady,
                               const MatrixBlocks& blocks) {
  std::vector<double> sums(run.ranks(), 0), counts(run.ranks(), 0);
  for_each_row(run, blocks, [&](std::size_t row, std::span<const double> values) {
    if (!steady.keeps(row)) return;
    for (std::size_t rank = 0; rank < values.size(); ++rank) {
      const bool measured = std::isfinite(values[rank]);
      sums[rank] += measured ? values[rank] : 0;
      counts[rank] += measured ? 1 : 0;
    }
  });
  for (std::size_t rank = 0; rank < sums.size(); ++rank)
    sums[rank] = counts[rank] > 0 ? sums[rank] / counts[rank] : Statistics::kNone;
  return sums;
}

// A block of rows at a time, so that what is written is as near as what is read.
Matrix steady_by_rank(RunReader& run, const SteadyRows& steady, const MatrixBlocks& blocks) {
  Matrix result{run.ranks(), steady.kept(), {}};
  result.values.resize(result.rows * result.columns);
  std::size_t done = 0;
  for_each_block(run, run.ranks(), [&](std::size_t first, std::size_t count) {
    const Matrix block = blocks(run, first, count);
    std::vector<std::size_t> kept;
    for (std::size_t row = 0; row < count; ++row)
      if (steady.keeps(first + row)) kept.push_back(row);
    for (std::size_t rank = 0; rank < result.rows; ++rank)
      for (std::size_t i = 0; i < kept.size(); ++i)
        result.values[rank * result.columns + done + i] = block.at(kept[i], rank);
    done += kept.size();
  });
  return result;
}

std::vector<double> slowest_rank(RunReader& run, const MatrixBlocks& blocks) {
  std::vector<double> slowest(run.iterations(), kNotMeasured);
  for_each_row(run, blocks, [&](std::size_t row, std::span<const double> values) {
    for (const double value : values)
      slowest[row] = std::fmax(slowest[row], value);
  });
  return slowest;
}

std::vector<double> mean_over_ranks(RunReader& run, const MatrixBlocks& blocks) {
  std::vector<double> means;
  for_each_row(run, blocks,
               [&](std::size_t, std::span<const double> values) { means.push_back(mean(values)); });
  return means;
}

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
  rows.by_rule = static_cast<std::size_t>(std::ranges::count(rows.warmup, true));
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
  const std::size_t period = exchange_period(run);
  const std::size_t beyond = rows.kept() % period;
  for (std::size_t i = 1; i <= beyond; ++i)
    rows.warmup[row_of[row_of.size() - i]] = true;
  rows.by_rule += beyond;
  return rows;
}

std::size_t exchange_period(const RunReader& run) {
  const Mode& mode = mode_named(run.option("sync"));
  if (!mode.exchanges || !mode.local) return 1;
  const auto steps = parsed_or<std::int64_t>(parse_integer, run.option("local-steps"), 1);
  return static_cast<std::size_t>(std::clamp<std::int64_t>(steps, 1, kMaxIterations));
}

std::vector<double> period_means(std::span<const double> values, std::size_t period) {
  if (period == 1) return {values.begin(), values.end()};
  std::vector<double> means;
  for (std::size_t first = 0; first + period <= values.size(); first += period)
    means.push_back(mean(values.subspan(first, period)));
  return means;
}

}  // namespace gradsync::report
