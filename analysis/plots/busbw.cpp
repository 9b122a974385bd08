// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "analysis/figures/bandwidth.h"
#include "analysis/figures/experiments.h"
#include "analysis/plots/plots.h"
#include "analysis/plots/run_marks.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "record/row_figures.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

constexpr const char* kCurveColors[] = {"#555555", "#0072b2", "#cc79a7", "#56b4e9"};

double busbw_gb_per_s(double bytes, double time_s, double ranks) {
  return busbw(CollectiveKind::kAllReduce, bytes, ranks, time_s) / kGB;
}

using BySize = std::map<std::int64_t, std::vector<double>>;

using CalibrationCurves = std::map<std::string, BySize>;

/// Values by "transport, cadence" and size; repeats of a size are joined.
CalibrationCurves calibration_of(const std::vector<const Run*>& runs) {
  CalibrationCurves curves;
  // One file may belong to several runs, and contenders have copies of that of their job.
  std::set<const CalibrationFile*> seen;
  for (const Run* run : runs) {
    const bool is_copied = !run->calibration_file && !experiment_id(*run).empty();
    if (run->calibration_file && !seen.insert(run->calibration_file).second) continue;
    for (const CalibrationRow& row : run->calibration()) {
      if (row.kind != CollectiveKind::kAllReduce || row.type != kFloatType || !usable(row))
        continue;
      const double value = busbw_gb_per_s(static_cast<double>(row.bytes), row.median_s,
                                          static_cast<double>(run->ranks));
      std::vector<double>& values =
          curves["calibration: " + row.transport + ", " + row.cadence][row.bytes];
      if (std::isfinite(value) && !(is_copied && contains(values, value))) values.push_back(value);
    }
  }
  return curves;
}

void add_row(BySize& values, const IterationRow& row, double ranks) {
  for (std::size_t b = 0; b < row.buckets.size(); ++b) {
    const auto& [bytes, kind] = row.buckets[b];
    if (kind != CollectiveKind::kAllReduce || bytes <= 0) continue;
    const double value =
        busbw_gb_per_s(static_cast<double>(bytes), shortest_moving_s(row, b), ranks);
    if (std::isfinite(value)) values[bytes].push_back(value);
  }
}

/// busbw of every all-reduce of training in steady iterations, by its size.
BySize training_of(const Run& run) {
  BySize values;
  RunReader& reader = *run.reader;
  const std::size_t step = rows_per_block(reader.ranks(), reader.index().buckets);
  for (std::size_t first = 0; first < reader.iterations(); first += step) {
    const auto rows = reader.rows(first, std::min(step, reader.iterations() - first));
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (run.steady.keeps(first + i)) add_row(values, rows[i], static_cast<double>(run.ranks));
  }
  return values;
}

std::vector<ChartPoint> points_by_size(const BySize& by_size) {
  std::vector<ChartPoint> points;
  for (const auto& [bytes, values] : by_size) {
    ChartPoint& point = points.emplace_back();
    point.x = static_cast<double>(bytes);
    point.y = median(values);
    if (values.size() < 2) continue;
    point.low = quantile(values, 0.05);
    point.high = quantile(values, 0.95);
  }
  return points;
}

/// "64 B", "4 KiB", "1 MiB".
std::string size_text(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit < 3; ++unit)
    bytes /= 1024;
  return fmt::format("{:g} {}", bytes, units[unit]);
}

// Every fourth power of two, so that the names have room.
std::vector<ChartTick> size_ticks(const ChartRange& range) {
  std::vector<ChartTick> ticks;
  for (double bytes = 1; bytes <= range.to; bytes *= 16)
    if (bytes >= range.from) ticks.push_back({bytes, size_text(bytes)});
  return ticks;
}

/// `names`: of the curves of all panels, so that each looks the same in all of them.
std::vector<ChartSeries> calibration_lines(const CalibrationCurves& curves, std::int64_t ranks,
                                           const std::set<std::string>& names) {
  std::vector<ChartSeries> lines;
  for (const auto& [name, by_size] : curves) {
    const auto nth = std::distance(names.begin(), names.find(name));
    lines.push_back({name,
                     Mark::kLinePoints,
                     kCurveColors[nth % std::ssize(kCurveColors)],
                     static_cast<int>(nth % 5 + 1),
                     1.5,
                     points_by_size(by_size),
                     {{"ranks", std::to_string(ranks)}}});
  }
  return lines;
}

/// "ddp"; "ddp, overlap=none" where runs of the mode differ in that.
std::string mark_name(const Run& run, const std::vector<const Run*>& runs) {
  auto options = options_of({OptionRole::kBetweenRanks, OptionRole::kMode});
  std::erase_if(options, [&](const std::string& option) {
    return std::ranges::all_of(runs, [&](const Run* other) {
      return other->mode != run.mode || option_value(*other, option) == option_value(run, option);
    });
  });
  return options.empty() ? run.mode : run.mode + ", " + settings_text(run, options);
}

/// What is of several runs, with the values of all.
void add_keys(std::vector<NamedText>& keys, const Run& run) {
  const std::vector<NamedText> more = run_keys(run);
  if (keys.empty()) keys = more;
  for (std::size_t i = 0; i < keys.size(); ++i)
    if ((" " + keys[i].value + " ").find(" " + more[i].value + " ") == std::string::npos)
      keys[i].value += " " + more[i].value;
}

std::vector<ChartSeries> training_marks(const std::vector<const Run*>& runs) {
  std::map<std::string, ChartSeries> by_name;
  std::map<std::string, BySize> values;
  for (const Run* run : runs) {
    const std::string name = mark_name(*run, runs);
    ChartSeries& series = by_name[name];
    series.label = "training: " + name;
    series.mark = Mark::kMarkers;
    series.color = mode_color(run->mode);
    add_keys(series.keys, *run);
    for (const auto& [bytes, more] : training_of(*run))
      values[name][bytes].insert(values[name][bytes].end(), more.begin(), more.end());
  }
  std::vector<ChartSeries> marks;
  for (auto& [name, series] : by_name) {
    series.points = points_by_size(values[name]);
    if (!series.points.empty()) marks.push_back(series);
  }
  return marks;
}

}  // namespace

std::optional<Chart> make_busbw_plot(const RunSet& set) {
  std::map<std::int64_t, std::vector<const Run*>> by_ranks;
  for (const Run& run : set.runs)
    if (run.ranks > 1) by_ranks[run.ranks].push_back(&run);
  std::map<std::int64_t, CalibrationCurves> curves;
  std::set<std::string> names;
  for (const auto& [ranks, runs] : by_ranks)
    for (const auto& [name, by_size] : curves[ranks] = calibration_of(runs))
      names.insert(name);
  Chart chart{"All-reduce: bus bandwidth against message size",
              {"busbw = 2(n - 1)/n S/t, GB = 1e9 B; n: ranks.",
               "Calibration: t is the median call of the slowest rank. Training: median over the "
               "steady iterations, t without waiting for stragglers (shortest over the "
               "ranks); bars: 5 % to 95 %."},
              {"message_bytes", "message size S (bytes)", "B", 2, false},
              {"busbw_GBps", "bus bandwidth (GB/s)", "GB/s", 10, false},
              {}};
  for (const auto& [ranks, runs] : by_ranks) {
    ChartPanel panel{count_text(ranks, "rank"),
                     "",
                     calibration_lines(curves[ranks], ranks, names),
                     {},
                     kNotMeasured,
                     false};
    if (panel.series.empty()) continue;
    for (ChartSeries& marks : training_marks(runs))
      panel.series.push_back(std::move(marks));
    panel.x_ticks = size_ticks(x_range(chart, panel));
    chart.panels.push_back(std::move(panel));
  }
  if (chart.panels.empty()) return std::nullopt;
  return chart;
}

}  // namespace gradsync::report
