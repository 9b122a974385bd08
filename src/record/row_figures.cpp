// SPDX-License-Identifier: BSD-3-Clause
#include "record/row_figures.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/ranges.h"
#include "stats/bandwidth.h"
#include "stats/statistics.h"

namespace gradsync {

bool usable(const CalibrationRow& row) {
  return row.bytes > 0 && row.median_s > 0 && std::isfinite(row.median_s) && row.wrong <= 0;
}

namespace {

CalibrationCurve& curve_of(std::vector<CalibrationCurve>& curves, const CalibrationRow& row) {
  for (CalibrationCurve& curve : curves)
    if (curve.kind == row.kind && curve.transport == row.transport &&
        curve.cadence == row.cadence && curve.type == row.type)
      return curve;
  CalibrationCurve curve;
  curve.kind = row.kind;
  curve.transport = row.transport;
  curve.cadence = row.cadence;
  curve.type = row.type;
  return curves.emplace_back(std::move(curve));
}

std::int64_t wrong_values(const std::vector<CalibrationRow>& rows) {
  std::int64_t sum = -1;
  for (const CalibrationRow& row : rows)
    if (row.wrong >= 0) sum = std::max<std::int64_t>(sum, 0) + row.wrong;
  return sum;
}

CalibrationRow merged(std::span<CalibrationRow> cycles) {
  std::ranges::sort(cycles, {}, &CalibrationRow::median_s);
  CalibrationRow row = cycles[(cycles.size() - 1) / 2];
  row.repetitions = 0;
  row.wrong = wrong_values({cycles.begin(), cycles.end()});
  for (const CalibrationRow& one : cycles) {
    row.repetitions += one.repetitions;
    row.minimum_s = std::min(row.minimum_s, one.minimum_s);
    row.maximum_s = std::max(row.maximum_s, one.maximum_s);
  }
  return row;
}

std::vector<CalibrationRow> each_size_once(std::vector<CalibrationRow> rows) {
  std::vector<CalibrationRow> once;
  for (auto first = rows.begin(); first != rows.end();) {
    const auto last = std::find_if(
        first, rows.end(), [&](const CalibrationRow& row) { return row.bytes != first->bytes; });
    once.push_back(merged({first, last}));
    first = last;
  }
  return once;
}

void complete(CalibrationCurve& curve, double ranks) {
  std::ranges::stable_sort(curve.rows,
                           [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  curve.rows = each_size_once(std::move(curve.rows));
  for (const CalibrationRow& row : curve.rows) {
    curve.bytes.push_back(static_cast<double>(row.bytes));
    curve.times_s.push_back(row.median_s);
    curve.busbw.push_back(busbw(curve.kind, curve.bytes.back(), ranks, row.median_s));
  }
  curve.average_busbw = mean(curve.busbw);
  curve.plateau_busbw = plateau(curve.bytes, curve.busbw);
  curve.half_bandwidth_bytes = half_bandwidth_bytes(curve.bytes, curve.busbw);
  curve.fit = fit_alpha_beta(curve.bytes, curve.times_s);
  curve.wrong = wrong_values(curve.rows);
}

}  // namespace

std::string CalibrationCurve::name() const {
  return fmt::format("{}, {}, {}{}", collective_name(kind), transport, cadence,
                     type == kFloatType ? "" : ", " + type);
}

std::vector<CalibrationCurve> calibration_curves(const std::vector<CalibrationRow>& rows,
                                                 std::size_t ranks) {
  std::vector<CalibrationCurve> curves;
  for (const CalibrationRow& row : rows)
    curve_of(curves, row).rows.push_back(row);
  for (CalibrationCurve& curve : curves)
    complete(curve, static_cast<double>(ranks));
  return curves;
}

double window_figure(const std::vector<WindowRow>& windows, std::string_view kind,
                     double RankWindow::*figure) {
  std::vector<double> rounds;
  for (const WindowRow& window : windows) {
    if (window.kind != kind) continue;
    std::vector<double> ranks = each(window.ranks, figure);
    rounds.push_back(mean(ranks));
  }
  return median(rounds);
}

double worth_of_iteration(double worth, std::int64_t samples, std::int64_t batch_global) {
  if (worth == 1) return 1;
  return worth * static_cast<double>(samples) / positive(static_cast<double>(batch_global));
}

void BlockTime::add(double iteration_s, double compute_s, double exposed_s, double wait_s) {
  time_s += iteration_s;
  parts_s[0] += compute_s;
  parts_s[1] += exposed_s;
  parts_s[2] += wait_s;
  parts_s[3] += iteration_s - compute_s - exposed_s - wait_s;
}

std::int64_t rounds_per_exchange(std::int64_t period, std::int64_t block,
                                 std::int64_t block_warmup) {
  return (block - block_warmup) % period == 0 ? 1 : period / std::gcd(period, block);
}

namespace {

void add(BlockTime& sum, const BlockTime& block, double share) {
  sum.time_s += share * block.time_s;
  for (std::size_t part = 0; part < kCostParts.size(); ++part)
    sum.parts_s[part] += share * block.parts_s[part];
}

}  // namespace

std::vector<std::pair<BlockTime, BlockTime>> paired_blocks(
    const std::map<std::int64_t, BlockTime>& one, const std::map<std::int64_t, BlockTime>& other,
    std::int64_t rounds) {
  std::vector<std::pair<BlockTime, BlockTime>> pairs;
  std::pair<BlockTime, BlockTime> sum;
  std::int64_t in_sum = 0, next = 0;
  for (const auto& [round, block] : one) {
    const auto found = other.find(round);
    if (found == other.end()) continue;
    if (round != next) {
      sum = {};
      in_sum = 0;
    }
    add(sum.first, block, 1 / static_cast<double>(rounds));
    add(sum.second, found->second, 1 / static_cast<double>(rounds));
    next = round + 1;
    if (++in_sum < rounds) continue;
    pairs.push_back(std::exchange(sum, {}));
    in_sum = 0;
  }
  return pairs;
}

BlockTime last_to_come(const std::vector<BlockTime>& ranks, std::size_t iterations) {
  constexpr auto kWait = static_cast<std::size_t>(CostPart::kWait);
  // Waiting is not known of runs without arrivals.
  const auto own_s = [](const BlockTime& one) {
    return one.time_s - (std::isnan(one.parts_s[kWait]) ? 0 : one.parts_s[kWait]);
  };
  BlockTime block = *std::ranges::max_element(
      ranks, [&](const BlockTime& a, const BlockTime& b) { return own_s(a) < own_s(b); });
  const double longest_s = std::ranges::max(ranks, {}, &BlockTime::time_s).time_s;
  block.parts_s[static_cast<std::size_t>(CostPart::kRest)] += longest_s - block.time_s;
  block.time_s = longest_s / static_cast<double>(iterations);
  for (double& part_s : block.parts_s)
    part_s /= static_cast<double>(iterations);
  return block;
}

}  // namespace gradsync
