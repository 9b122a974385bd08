// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/plots/chart.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/table.h"

namespace gradsync::report {

namespace {

constexpr double kMostStretch = 10;  // the whole y axis to that of one panel

class Extent {
 public:
  explicit Extent(bool positive) : positive_(positive) {}
  void hold(double value) {
    if (!std::isfinite(value) || (positive_ && value <= 0)) return;
    low_ = std::fmin(low_, value);
    high_ = std::fmax(high_, value);
  }
  bool empty() const { return std::isnan(low_); }
  double low() const { return low_; }
  double high() const { return high_; }

 private:
  bool positive_;
  double low_ = kNotMeasured, high_ = kNotMeasured;
};

template <typename Hold>
Extent extent_of(const ChartAxis& axis, const ChartPanel& panel, Hold hold) {
  Extent extent(axis.log > 0);
  for (const ChartSeries& series : panel.series)
    for (const ChartPoint& point : series.points)
      hold(extent, point);
  return extent;
}

ChartRange logarithmic(const ChartAxis& axis, const Extent& extent) {
  if (extent.empty()) return {1, axis.log};
  const double air = std::sqrt(axis.log > 2 ? 2.0 : axis.log);
  return {extent.low() / air, extent.high() * air};
}

ChartRange linear(const ChartAxis& axis, const Extent& extent) {
  if (extent.empty()) return {0, 1};
  double low = extent.low(), high = extent.high();
  if (axis.from_zero) low = std::min(0.0, low);
  if (high - low <= 1e-12 * std::max(std::abs(low), std::abs(high)))
    high = low + std::max(1.0, std::abs(low));
  const double air = 0.04 * (high - low);
  return {axis.from_zero && low == 0 ? 0 : low - air, high + air};
}

double step_of(double span, int about) {
  const double raw = span / std::max(1, about);
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (raw <= factor * power * 1.0000001) return factor * power;
  return 10 * power;
}

std::vector<ChartTick> linear_ticks(const ChartRange& range, int about) {
  const double step = step_of(range.to - range.from, about);
  const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9)));
  std::vector<ChartTick> ticks;
  for (double i = std::ceil(range.from / step - 1e-9); i * step <= range.to * (1 + 1e-12); ++i)
    ticks.push_back({i * step, fmt::format("{:.{}f}", i == 0 ? 0.0 : i * step, decimals)});
  return ticks;
}

std::vector<ChartTick> power_ticks(double base, const ChartRange& range, int about) {
  const double first = std::ceil(std::log(range.from) / std::log(base) - 1e-9);
  const double last = std::floor(std::log(range.to) / std::log(base) + 1e-9);
  const double step = std::max(1.0, std::ceil((last - first + 1) / (about + 2)));
  std::vector<ChartTick> ticks;
  for (double power = first; power <= last; power += step) {
    const double at = std::pow(base, power);
    ticks.push_back({at, fmt::format("{:g}", at)});
  }
  return ticks;
}

ChartRange own_y_range(const Chart& chart, const ChartPanel& panel) {
  // What lies above the end of the axis has no part in where it begins.
  const bool ends = std::isfinite(panel.y_top) && chart.y.log == 0;
  const Extent extent = extent_of(chart.y, panel, [&](Extent& held, const ChartPoint& point) {
    for (const double value : {point.y, point.low, point.high})
      held.hold(ends ? std::min(value, panel.y_top) : value);
  });
  if (chart.y.log > 0) return logarithmic(chart.y, extent);
  ChartRange range = linear(chart.y, extent);
  if (ends) range.to = panel.y_top;
  return range;
}

double length_of(const ChartAxis& axis, const ChartRange& range) {
  return axis.log > 0 ? std::log(range.to / range.from) : range.to - range.from;
}

std::vector<NamedText> all_keys(const Chart& chart) {
  std::vector<NamedText> keys;
  for (const ChartPanel& panel : chart.panels)
    for (const ChartSeries& series : panel.series)
      for (const NamedText& key : series.keys)
        if (std::ranges::none_of(keys, [&](const auto& k) { return k.name == key.name; }))
          keys.push_back({key.name, ""});
  return keys;
}

Cell key_cell(const ChartSeries& series, const std::string& name) {
  for (const NamedText& key : series.keys)
    if (key.name == name) return key.value;
  return "";
}

Table empty_csv(const Chart& chart, const std::vector<NamedText>& keys) {
  Table table{"", "", {}, {}, {}};
  std::vector<std::string> names = {"panel",
                                    "series",
                                    chart.x.column,
                                    chart.y.column,
                                    chart.y.column + "_low",
                                    chart.y.column + "_high",
                                    "mark",
                                    "panel_title",
                                    "label",
                                    "name"};
  for (const NamedText& key : keys)
    names.push_back(key.name);
  for (const std::string& name : names)
    table.columns.push_back({name, name});
  return table;
}

}  // namespace

ChartRange x_range(const Chart& chart, const ChartPanel& panel) {
  const Extent extent =
      extent_of(chart.x, panel, [](Extent& held, const ChartPoint& point) { held.hold(point.x); });
  if (chart.x.log > 0) return logarithmic(chart.x, extent);
  const bool named = !panel.x_ticks.empty();  // places of names, or of bars, are 1 apart
  const bool bars = std::ranges::any_of(panel.series, [](const ChartSeries& series) {
    return series.mark == Mark::kBar || series.mark == Mark::kHatchedBar;
  });
  if ((named || bars) && !extent.empty()) return {extent.low() - 0.7, extent.high() + 0.7};
  return linear(chart.x, extent);
}

ChartRange y_range(const Chart& chart, const ChartPanel& panel) {
  const ChartRange own = own_y_range(chart, panel);
  if (std::isfinite(panel.y_top)) return own;
  ChartRange all = own;
  double smallest = length_of(chart.y, own);
  for (const ChartPanel& other : chart.panels) {
    if (other.series.empty()) continue;
    const ChartRange range = own_y_range(chart, other);
    all = {std::min(all.from, range.from), std::max(all.to, range.to)};
    smallest = std::min(smallest, length_of(chart.y, range));
  }
  return length_of(chart.y, all) > kMostStretch * smallest ? own : all;
}

std::vector<ChartTick> round_ticks(const ChartAxis& axis, const ChartRange& range, int about) {
  if (axis.log == 0) return linear_ticks(range, about);
  auto ticks = power_ticks(axis.log, range, about);
  // Less than one power of the base: round numbers say more.
  return ticks.size() >= 2 ? ticks : linear_ticks(range, about);
}

std::string chart_csv(const Chart& chart) {
  const auto keys = all_keys(chart);
  Table table = empty_csv(chart, keys);
  for (std::size_t p = 0; p < chart.panels.size(); ++p)
    for (std::size_t s = 0; s < chart.panels[p].series.size(); ++s) {
      const ChartSeries& series = chart.panels[p].series[s];
      for (const ChartPoint& point : series.points) {
        std::vector<Cell> row = {Cell::count(static_cast<double>(p + 1)),
                                 Cell::count(static_cast<double>(s + 1)),
                                 Cell::of(point.x, 6),
                                 Cell::of(point.y, 6),
                                 Cell::of(point.low, 6),
                                 Cell::of(point.high, 6),
                                 kMarkNames[static_cast<std::size_t>(series.mark)],
                                 chart.panels[p].title,
                                 series.label,
                                 point.name};
        for (const NamedText& key : keys)
          row.push_back(key_cell(series, key.name));
        table.add(std::move(row));
      }
    }
  return render_csv(table);
}

namespace {

bool coincide(const ChartSeries& one, const ChartSeries& other, double tolerance) {
  return std::ranges::equal(
      one.points, other.points, [&](const ChartPoint& a, const ChartPoint& b) {
        return a.x == b.x &&
               (std::abs(a.y - b.y) <= tolerance || (std::isnan(a.y) && std::isnan(b.y)));
      });
}

}  // namespace

std::vector<std::string> coinciding_lines(const Chart& chart) {
  constexpr double kWidthOfLine = 0.004;  // of the axis
  std::vector<std::string> sentences;
  for (const ChartPanel& panel : chart.panels) {
    const ChartRange range = y_range(chart, panel);
    std::vector<std::vector<const ChartSeries*>> sets;
    for (const ChartSeries& series : panel.series) {
      if (series.mark != Mark::kLine || series.label.empty()) continue;
      const auto with = std::ranges::find_if(sets, [&](const auto& set) {
        return coincide(*set.front(), series, kWidthOfLine * (range.to - range.from));
      });
      if (with == sets.end())
        sets.push_back({&series});
      else
        with->push_back(&series);
    }
    for (const auto& set : sets) {
      if (set.size() < 2) continue;
      std::string names = set.front()->label;
      for (std::size_t i = 1; i < set.size(); ++i)
        names += (i + 1 < set.size() ? ", " : " and ") + set[i]->label;
      sentences.push_back(fmt::format("{}: {} coincide.", panel.title, names));
    }
  }
  return sentences;
}

std::string caption_text(const Chart& chart) {
  std::string text;
  for (const std::string& sentence : chart.caption)
    text += (text.empty() ? "" : " ") + sentence;
  return text;
}

}  // namespace gradsync::report
