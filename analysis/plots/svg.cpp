// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/plots/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/parse.h"
#include "base/process.h"
#include "base/table.h"
#include "options/modes.h"

namespace gradsync::report {

namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

std::string escaped(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default:
      return static_cast<unsigned char>(c) < ' ' || c == 0x7F ? " " : std::string(1, c);
  }
}

bool plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

}  // namespace

std::string html_text(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    if (length == 0)
      result += kReplacement;
    else if (length == 1)
      result += escaped(text[at]);
    else
      result += text.substr(at, length);
    at += length == 0 ? 1 : length;
  }
  return result;
}

std::string id_text(std::string_view text) {
  std::string result;
  for (const char c : text)
    result += plain(c) ? c : '-';
  return result;
}

namespace {

// In units of the view box; text is 12 high, so that a phone still shows it at 10 pixels.
constexpr double kWidth = 440, kPlotHeight = 230, kLeft = 58, kRight = 14, kTop = 10;
constexpr double kTickRoom = 20, kLabelRoom = 20, kCharacter = 6.3, kPerBar = 22;
constexpr double kCap = 3.5;
constexpr std::size_t kMostPathPoints = 300, kMostHovers = 40;
constexpr std::size_t kLongestName = 30;  // longer names of ticks stand below, by number

std::size_t longest_name(const ChartPanel& panel) {
  std::size_t most = 0;
  for (const ChartTick& tick : panel.x_ticks)
    most = std::max(most, display_width(tick.text));
  return most;
}

bool has_numbered_ticks(const ChartPanel& panel) {
  return panel.slanted && longest_name(panel) > kLongestName;
}

/// "2: ddp, 64, lr=0.02", of each tick that has a number in place of its name.
std::vector<std::string> numbered_names(const ChartPanel& panel) {
  std::vector<std::string> names;
  if (has_numbered_ticks(panel))
    for (const ChartTick& tick : panel.x_ticks)
      names.push_back(fmt::format("{}: {}", names.size() + 1, tick.text));
  return names;
}

class Frame {
 public:
  Frame(const Chart& chart, const ChartPanel& panel)
      : x_(x_range(chart, panel)),
        y_(y_range(chart, panel)),
        log_x_(chart.x.log > 0),
        log_y_(chart.y.log > 0),
        slanted_(panel.slanted && !has_numbered_ticks(panel)),
        slant_room_(slanted_ ? slant(longest_name(panel)) + 8 : kTickRoom),
        inner_(std::max(kWidth - kLeft - kRight, kPerBar * ticks_of(panel))),
        left_(kLeft) {
    if (!slanted_) return;
    for (const ChartTick& tick : panel.x_ticks)
      left_ =
          std::max(left_, slant(display_width(tick.text)) - share(tick.at, x_, log_x_) * inner_);
  }

  double x(double value) const { return left_ + share(value, x_, log_x_) * inner_ + aside_; }
  /// The frame of a series that is drawn beside others.
  Frame moved_aside(double by) const {
    Frame moved = *this;
    moved.aside_ = by;
    return moved;
  }
  double y(double value) const { return bottom() - share(value, y_, log_y_) * kPlotHeight; }
  double bottom() const { return kTop + kPlotHeight; }
  double left() const { return left_; }
  double right() const { return left_ + inner_; }
  double width() const { return right() + kRight; }
  bool slanted() const { return slanted_; }
  double height() const { return bottom() + slant_room_ + kLabelRoom; }
  const ChartRange& x_ends() const { return x_; }
  const ChartRange& y_ends() const { return y_; }

 private:
  static double share(double value, const ChartRange& range, bool log) {
    if (log) return std::log(value / range.from) / std::log(range.to / range.from);
    return (value - range.from) / (range.to - range.from);
  }
  /// Width and height of a slanted name.
  static double slant(std::size_t characters) {
    return 0.72 * kCharacter * static_cast<double>(characters);
  }
  static double ticks_of(const ChartPanel& panel) {
    return panel.slanted ? static_cast<double>(panel.x_ticks.size()) : 0;
  }

  ChartRange x_, y_;
  bool log_x_, log_y_, slanted_;
  double slant_room_, inner_, left_;
  double aside_ = 0;
};

bool drawable(const Chart& chart, double x, double y) {
  return std::isfinite(x) && std::isfinite(y) && (chart.x.log == 0 || x > 0) &&
         (chart.y.log == 0 || y > 0);
}

std::string line(double x1, double y1, double x2, double y2, const char* attributes) {
  return fmt::format("<path {} d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>", attributes, x1, y1, x2, y2);
}

std::string x_tick(const Frame& frame, const ChartTick& tick) {
  const double x = frame.x(tick.at), y = frame.bottom() + 14;
  const std::string place =
      frame.slanted()
          ? fmt::format("text-anchor=\"end\" transform=\"translate({:.1f} {:.1f}) rotate(-45)\"",
                        x + 4, y - 2)
          : fmt::format("text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\"", x, y);
  return line(x, kTop, x, frame.bottom(), "class=\"grid\"") +
         fmt::format("<text class=\"tick\" {}>{}</text>\n", place, html_text(tick.text));
}

std::string y_tick(const Frame& frame, const ChartTick& tick) {
  const double y = frame.y(tick.at);
  return line(frame.left(), y, frame.right(), y, "class=\"grid\"") +
         fmt::format(
             "<text class=\"tick\" text-anchor=\"end\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
             frame.left() - 6, y + 4, html_text(tick.text));
}

std::string axes(const Chart& chart, const ChartPanel& panel, const Frame& frame) {
  auto ticks = panel.x_ticks.empty() ? round_ticks(chart.x, frame.x_ends(), 6) : panel.x_ticks;
  if (has_numbered_ticks(panel))
    for (std::size_t i = 0; i < ticks.size(); ++i)
      ticks[i].text = std::to_string(i + 1);
  std::string text;
  for (const ChartTick& tick : ticks)
    text += x_tick(frame, tick);
  for (const ChartTick& tick : round_ticks(chart.y, frame.y_ends(), 5))
    text += y_tick(frame, tick);
  text += fmt::format("<path class=\"ax\" d=\"M{0:.1f} {1}V{2:.1f}H{3:.1f}\"/>\n", frame.left(),
                      kTop, frame.bottom(), frame.right());
  text +=
      fmt::format("<text text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                  (frame.left() + frame.right()) / 2, frame.height() - 5, html_text(chart.x.label));
  return text + fmt::format(
                    "<text text-anchor=\"middle\" transform=\"translate({:.1f} {:.1f}) "
                    "rotate(-90)\">{}</text>\n",
                    frame.left() - kLeft + 12, kTop + kPlotHeight / 2, html_text(chart.y.label));
}

std::string number_text(double value, const std::string& unit) {
  return fmt::format("{:.4g}{}{}", value, unit.empty() ? "" : " ", unit);
}

/// "ddp, 4 ranks: 12.3 ms (11.9 to 12.8)".
std::string value_text(const Chart& chart, const ChartSeries& series, const ChartPoint& point) {
  const bool bar = series.mark == Mark::kBar || series.mark == Mark::kHatchedBar;
  const std::string where =
      point.name.empty() ? fmt::format("{} {:.6g}", chart.x.column, point.x) : point.name;
  std::string text = where + (series.label.empty() ? "" : ", " + series.label) + ": " +
                     number_text(point.y, chart.y.unit);
  if (!bar && std::isfinite(point.low + point.high))
    text += fmt::format(" ({:.4g} to {:.4g})", point.low, point.high);
  return text;
}

std::string title(const Chart& chart, const ChartSeries& series, const ChartPoint& point) {
  return "<title>" + html_text(value_text(chart, series, point)) + "</title>";
}

std::size_t step_for(std::size_t count, std::size_t most) {
  return std::max<std::size_t>(1, (count + most - 1) / most);
}

/// Whether each point of a line lies to the right of the one before: steps have corners, which a
/// line would lose with some of its points.
bool is_smooth(const std::vector<ChartPoint>& points) {
  return std::ranges::adjacent_find(points, std::ranges::greater_equal(), &ChartPoint::x) ==
         points.end();
}

std::string path_of(const Chart& chart, const ChartSeries& series, const Frame& frame,
                    const char* joint) {
  std::string path;
  bool begun = false;
  const bool thin = series.mark != Mark::kPoints && is_smooth(series.points);
  const std::size_t step = thin ? step_for(series.points.size(), kMostPathPoints) : 1;
  for (std::size_t i = 0; i < series.points.size(); ++i) {
    if (i % step != 0 && i + 1 < series.points.size()) continue;
    const ChartPoint& point = series.points[i];
    const bool here = drawable(chart, point.x, point.y);
    if (here)
      path += fmt::format("{}{:.1f} {:.1f}{}", begun && joint[0] == 'L' ? "L" : "M",
                          frame.x(point.x), frame.y(point.y), joint[0] == 'L' ? "" : joint);
    begun = here;
  }
  return path;
}

std::string dashes(int dash) {
  constexpr std::array<const char*, kLineDashes> kPatterns = {
      "",    "7 4",  "2 3", "8 3 2 3",  "10 6",   "8 3 2 3 2 3",
      "4 4", "12 3", "1 4", "12 3 4 3", "6 3 1 3"};
  const char* pattern = kPatterns[static_cast<std::size_t>(std::clamp(dash, 1, kLineDashes) - 1)];
  return *pattern ? fmt::format(" stroke-dasharray=\"{}\"", pattern) : "";
}

std::string line_of(const Chart& chart, const ChartSeries& series, const Frame& frame) {
  return fmt::format(
      "<path class=\"line\" stroke-width=\"{:.2g}\"{} d=\"{}\"><title>{}</title></path>\n",
      0.8 * series.width, dashes(series.dash), path_of(chart, series, frame, "L"),
      html_text(series.label));
}

/// Invisible points on a long line that show their value.
std::string hovers(const Chart& chart, const ChartSeries& series, const Frame& frame) {
  std::string text;
  const std::size_t step = step_for(series.points.size(), kMostHovers);
  for (std::size_t i = 0; i < series.points.size(); i += step) {
    const ChartPoint& point = series.points[i];
    if (!drawable(chart, point.x, point.y)) continue;
    text += fmt::format("<circle class=\"hit\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"6\">{}</circle>\n",
                        frame.x(point.x), frame.y(point.y), title(chart, series, point));
  }
  return text;
}

std::string interval_of(const Chart& chart, const ChartPoint& point, const Frame& frame) {
  if (!drawable(chart, point.x, point.low) || !drawable(chart, point.x, point.high)) return "";
  const double x = frame.x(point.x), low = frame.y(point.low), high = frame.y(point.high);
  return fmt::format(
      "<path class=\"bar-end\" d=\"M{0:.1f} {2:.1f}H{1:.1f}M{0:.1f} {3:.1f}H{1:.1f}"
      "M{4:.1f} {2:.1f}V{3:.1f}\"/>",
      x - kCap, x + kCap, low, high, x);
}

/// Where the marker of a color has its corners, so that colors are told apart in grey as well;
/// empty: a circle.
std::string_view corners_of(const std::string& color) {
  for (const Mode* traced : {&kUnknownMode, &kTracedDdp})
    if (color == traced->color) return traced->marker;
  for (const Mode& mode : kModes)
    if (color == mode.color) return mode.marker;
  return {};
}

std::string marker(const ChartSeries& series, double x, double y) {
  const char* kind = series.mark == Mark::kMarkers ? "ring" : "dot";
  const std::string_view corners = corners_of(series.color);
  return corners.empty()
             ? fmt::format("<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.2\"/>", kind, x,
                           y)
             : fmt::format("<path class=\"{}\" transform=\"translate({:.1f} {:.1f})\" d=\"{}\"/>",
                           kind, x, y, corners);
}

bool has_markers(const ChartSeries& series) {
  return series.mark == Mark::kLinePoints || series.mark == Mark::kMarkers;
}

/// Whether markers or intervals of the two would lie on each other.
bool cover_each_other(const Chart& chart, const Frame& frame, const ChartSeries& a,
                      const ChartSeries& b) {
  constexpr double kMarkerSize = 8;
  const auto ends = [&](const ChartPoint& point) {
    const double y = frame.y(point.y);
    const auto end = [&](double value, double from) {
      return drawable(chart, point.x, value) ? frame.y(value) : from;
    };
    return std::pair(std::min(end(point.high, y), y - kMarkerSize / 2),
                     std::max(end(point.low, y), y + kMarkerSize / 2));
  };
  for (const ChartPoint& one : a.points)
    for (const ChartPoint& other : b.points) {
      if (one.x != other.x || !drawable(chart, one.x, one.y) || !drawable(chart, other.x, other.y))
        continue;
      const auto [top, bottom] = ends(one);
      const auto [other_top, other_bottom] = ends(other);
      if (top <= other_bottom && other_top <= bottom) return true;
    }
  return false;
}

/// How far each series is moved aside, so that no markers lie on each other: nowhere if none do.
std::vector<double> moved_aside(const Chart& chart, const ChartPanel& panel, const Frame& frame) {
  constexpr double kStep = 7, kMost = 28;
  std::vector<std::size_t> marked;
  for (std::size_t i = 0; i < panel.series.size(); ++i)
    if (has_markers(panel.series[i])) marked.push_back(i);
  std::vector<double> aside(panel.series.size(), 0);
  const bool covered = std::ranges::any_of(marked, [&](std::size_t i) {
    return std::ranges::any_of(marked, [&](std::size_t j) {
      return j < i && cover_each_other(chart, frame, panel.series[i], panel.series[j]);
    });
  });
  if (!covered) return aside;
  const auto last = static_cast<double>(marked.size() - 1);
  for (std::size_t i = 0; i < marked.size(); ++i)
    aside[marked[i]] = std::min(kStep, kMost / last) * (static_cast<double>(i) - last / 2);
  return aside;
}

std::string markers(const Chart& chart, const ChartSeries& series, const Frame& frame) {
  std::string text;
  for (const ChartPoint& point : series.points) {
    if (!drawable(chart, point.x, point.y)) continue;
    text += fmt::format("<g class=\"m\">{}{}{}</g>\n", interval_of(chart, point, frame),
                        marker(series, frame.x(point.x), frame.y(point.y)),
                        title(chart, series, point));
  }
  return text;
}

std::string bars(const Chart& chart, const ChartSeries& series, const Frame& frame,
                 const std::string& fill) {
  std::string text;
  for (const ChartPoint& point : series.points) {
    if (!drawable(chart, point.x, point.low) || !drawable(chart, point.x, point.high)) continue;
    const bool band = series.mark == Mark::kBand;
    const double left = band ? frame.left() : frame.x(point.x - kBarHalfWidth),
                 right = band ? frame.right() : frame.x(point.x + kBarHalfWidth);
    const double top = frame.y(std::max(point.low, point.high));
    const double bottom = frame.y(std::min(point.low, point.high));
    text += fmt::format(
        "<rect class=\"m\" fill=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" "
        "height=\"{:.1f}\">{}</rect>\n",
        fill, left, top, right - left, bottom - top, title(chart, series, point));
  }
  return text;
}

std::string whiskers(const Chart& chart, const ChartSeries& series, const Frame& frame) {
  std::string text;
  for (const ChartPoint& point : series.points)
    text += fmt::format("<g class=\"m\">{}{}</g>\n", interval_of(chart, point, frame),
                        title(chart, series, point));
  return text;
}

/// In the color around it.
std::string hatch_pattern(const std::string& id) {
  return fmt::format(
      "<defs><pattern id=\"{}\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
      "patternTransform=\"rotate(45)\"><path stroke=\"currentColor\" stroke-width=\"2.4\" "
      "d=\"M0 0V5\"/></pattern></defs>",
      id);
}

std::string marks(const Chart& chart, const ChartSeries& series, const Frame& frame,
                  const std::string& id) {
  switch (series.mark) {
    case Mark::kLine:
      return line_of(chart, series, frame) +
             (series.label.empty() ? "" : hovers(chart, series, frame));
    case Mark::kPoints:
      return fmt::format("<path class=\"faint\" d=\"{}\"/>\n", path_of(chart, series, frame, "h0"));
    case Mark::kLinePoints:
      return line_of(chart, series, frame) + markers(chart, series, frame);
    case Mark::kMarkers:
      return markers(chart, series, frame);
    case Mark::kBar:
    case Mark::kBand:
      return bars(chart, series, frame, "currentColor");
    case Mark::kHatchedBar:
      return hatch_pattern(id + "-hatch") + bars(chart, series, frame, "url(#" + id + "-hatch)");
    case Mark::kWhisker:
      return whiskers(chart, series, frame);
  }
  return "";
}

std::string colored(const ChartSeries& series, const std::string& inside) {
  if (series.color.empty()) return "<g>" + inside + "</g>\n";
  // A band lies behind all else, on light and on dark paper.
  return fmt::format("<g class=\"s\" color=\"{0}\" style=\"--c:{0}\"{1}>{2}</g>\n", series.color,
                     series.mark == Mark::kBand ? " opacity=\".25\"" : "", inside);
}

std::string clip_path(const Frame& frame, const std::string& id) {
  return fmt::format(
      "<defs><clipPath id=\"{}-clip\"><rect x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" "
      "height=\"{:.1f}\"/></clipPath></defs>\n",
      id, frame.left(), kTop - 6, frame.right() - frame.left() + 8, frame.bottom() - kTop + 6);
}

std::string sample(const ChartSeries& series, const std::string& id) {
  switch (series.mark) {
    case Mark::kBar:
    case Mark::kBand:
      return "<rect y=\"2\" width=\"22\" height=\"10\" fill=\"currentColor\"/>";
    case Mark::kHatchedBar:
      return hatch_pattern(id) +
             "<rect y=\"2\" width=\"22\" height=\"10\" fill=\"#fff\"/><rect y=\"2\" width=\"22\" "
             "height=\"10\" fill=\"url(#" +
             id + ")\"/>";
    case Mark::kWhisker:
      return "<path class=\"bar-end\" d=\"M1 3V11M21 3V11M1 7H21\"/>";
    case Mark::kMarkers:
      return marker(series, 11, 7);
    default:
      break;
  }
  std::string text =
      fmt::format("<path class=\"line\" stroke-width=\"2\"{} d=\"M0 7H22\"/>", dashes(series.dash));
  if (series.mark == Mark::kLinePoints) text += marker(series, 11, 7);
  return text;
}

}  // namespace

const std::string_view kSvgMarkStyle =
#include "build/embedded/analysis/plots/marks.css"
    ;

SvgSize svg_size(const Chart& chart, const ChartPanel& panel) {
  const Frame frame(chart, panel);
  return {frame.width(), frame.height()};
}

std::string svg_panel(const Chart& chart, const ChartPanel& panel, const std::string& id,
                      const std::string& attributes) {
  const Frame frame(chart, panel);
  std::string text = fmt::format(
      "<svg class=\"chart\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\" {}>\n",
      frame.width(), frame.height(), html_text(chart.title + ", " + panel.title), attributes);
  text += clip_path(frame, id) + axes(chart, panel, frame);
  text += fmt::format("<g clip-path=\"url(#{}-clip)\">\n", id);
  const std::vector<double> aside = moved_aside(chart, panel, frame);
  for (std::size_t i = 0; i < panel.series.size(); ++i)
    text +=
        colored(panel.series[i], marks(chart, panel.series[i], frame.moved_aside(aside[i]), id));
  if (chart.y.log == 0 && frame.y_ends().from < 0 && frame.y_ends().to > 0)
    text += line(frame.left(), frame.y(0), frame.right(), frame.y(0), "class=\"ax\"");
  return text + "</g>\n</svg>\n";
}

std::string svg_sample(const ChartSeries& series, const std::string& id) {
  return colored(series, sample(series, id));
}

std::string svg_legend(const ChartPanel& panel, const std::string& id) {
  std::string text = "<ul class=\"legend\">\n";
  std::size_t number = 0;
  for (const ChartSeries& series : panel.series) {
    if (series.label.empty()) continue;
    text += fmt::format(
        "<li><svg class=\"key\" viewBox=\"0 0 22 14\" aria-hidden=\"true\">{}</svg>{}</li>\n",
        svg_sample(series, fmt::format("{}-key-{}", id, ++number)), html_text(series.label));
  }
  for (const std::string& name : numbered_names(panel))
    text += fmt::format("<li>{}</li>\n", html_text(name));
  return text + "</ul>\n";
}

namespace {

// Pixels. Text is measured by its number of characters: the widths of the font are not known here.
constexpr double kMargin = 16, kGap = 28, kTitle = 30, kHead = 20, kLine = 16,
                 kLegendCharacter = 6.5, kTitleCharacter = 8.8;
constexpr double kKeyWidth = 22, kKeyRoom = 30, kKeyGap = 18, kSmall = 11, kSmallCharacter = 6.2;

constexpr const char* kStyle =
    "svg{color:#222}text{font-family:'DejaVu Sans',Verdana,sans-serif;font-size:12px;fill:#222}"
    ".title{font-size:16px}.tick,.caption{font-size:11px;fill:#444}"
    ".grid{stroke:#ddd}.ax{fill:none;stroke:#444}.hit{fill:none}";

struct Entry {
  const ChartSeries* series;
  double x = 0;
  std::size_t row = 0;
};

double legend_width(const std::string& label) {
  return kKeyRoom + kLegendCharacter * static_cast<double>(display_width(label));
}

double title_width(const std::string& title) {
  return kTitleCharacter * static_cast<double>(display_width(title));
}

/// Places of the samples of a legend, in rows of at most `width`.
std::vector<Entry> placed(const ChartPanel& panel, double width) {
  std::vector<Entry> entries;
  double x = 0;
  std::size_t row = 0;
  for (const ChartSeries& series : panel.series) {
    if (series.label.empty()) continue;
    const double room = legend_width(series.label) + kKeyGap;
    if (x > 0 && x + room - kKeyGap > width) {
      x = 0;
      ++row;
    }
    entries.push_back({&series, x, row});
    x += room;
  }
  return entries;
}

double height_of(const std::vector<Entry>& entries) {
  return entries.empty() ? 0 : kLine * static_cast<double>(entries.back().row + 1);
}

std::string text_at(double x, double y, const char* attributes, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, attributes,
                     html_text(text));
}

std::string legend(const std::vector<Entry>& entries, double left, double top,
                   const std::string& id) {
  std::string text;
  for (const Entry& entry : entries) {
    const double x = left + entry.x, y = top + kLine * static_cast<double>(entry.row);
    text +=
        fmt::format("<g transform=\"translate({:.1f} {:.1f})\">{}</g>\n", x, y,
                    svg_sample(*entry.series, fmt::format("{}-key-{}", id, &entry - &entries[0])));
    text += text_at(x + kKeyRoom, y + 11, "", entry.series->label);
  }
  return text;
}

bool look_alike(const ChartSeries& a, const ChartSeries& b) {
  return a.color == b.color && a.mark == b.mark && a.dash == b.dash;
}

/// The series of all panels by label; none where a label looks different in two of them.
std::optional<ChartPanel> common_legend(const Chart& chart) {
  ChartPanel all;
  for (const ChartPanel& panel : chart.panels)
    for (const ChartSeries& series : panel.series) {
      const auto known = std::ranges::find(all.series, series.label, &ChartSeries::label);
      if (known == all.series.end())
        all.series.push_back(series);
      else if (!series.label.empty() && !look_alike(*known, series))
        return std::nullopt;
    }
  return all;
}

class Figure {
 public:
  explicit Figure(const Chart& chart) : chart_(chart) {
    const std::size_t panels = std::max<std::size_t>(1, chart.panels.size());
    columns_ = panels <= 1 ? 1 : panels <= 4 ? 2 : 3;
    for (const ChartPanel& panel : chart.panels)
      panel_width_ = std::max(panel_width_, svg_size(chart, panel).width);
    width_ = static_cast<double>(columns_) * (panel_width_ + kGap) - kGap;
    legend_ = common_legend(chart);
    // What cannot be wrapped fits, however narrow the panels are.
    width_ = std::max(width_, title_width(chart.title));
    for (const ChartPanel& panel : chart.panels)
      for (const ChartSeries& series : panel.series)
        if (!series.label.empty()) width_ = std::max(width_, legend_width(series.label));
  }

  std::string draw() {
    y_ = kMargin + kTitle;
    std::string inside = text_at(kMargin + width_ / 2, kMargin + 14,
                                 "class=\"title\" text-anchor=\"middle\"", chart_.title);
    for (std::size_t first = 0; first < chart_.panels.size(); first += columns_)
      inside += row(first);
    if (legend_) {
      const auto entries = placed(*legend_, width_);
      inside += legend(entries, kMargin, y_, "figure");
      y_ += height_of(entries) + 8;
    }
    inside += caption();
    const double width = width_ + 2 * kMargin, height = y_ + kMargin - 8;
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\">\n<style>{2}{3}</style>\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{4}</svg>\n",
        width, height, kStyle, kSvgMarkStyle, inside);
  }

 private:
  /// The panels from `first` on that stand side by side.
  std::string row(std::size_t first) {
    const std::size_t end = std::min(first + columns_, chart_.panels.size());
    const double step = panel_width_ + kGap;
    // The title may be wider than the panels.
    const double left = kMargin + (width_ + kGap - static_cast<double>(columns_) * step) / 2;
    std::string text;
    double height = 0;
    for (std::size_t i = first; i < end; ++i) {
      double bottom = 0;
      text += panel(i, left + static_cast<double>(i - first) * step, bottom);
      height = std::max(height, bottom);
    }
    y_ += height + 12;
    return text;
  }

  std::string panel(std::size_t index, double left, double& height) const {
    const ChartPanel& panel = chart_.panels[index];
    const std::string id = fmt::format("panel-{}", index + 1);
    const SvgSize size = svg_size(chart_, panel);
    std::string text =
        text_at(left + size.width / 2, y_ + 12, "text-anchor=\"middle\"", panel.title);
    text += svg_panel(chart_, panel, id,
                      fmt::format("x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.0f}\" height=\"{:.0f}\"",
                                  left, y_ + kHead, size.width, size.height));
    height = kHead + size.height + 4;
    std::vector<std::string> below = numbered_names(panel);
    if (!panel.subtitle.empty()) below.push_back(panel.subtitle);
    for (const std::string& one : below)
      for (const std::string& line :
           wrapped(one, static_cast<std::size_t>(panel_width_ / kSmallCharacter))) {
        text += text_at(left, y_ + height + 10, "class=\"caption\"", line);
        height += kLine;
      }
    if (legend_) return text;
    const auto entries = placed(panel, panel_width_);
    text += legend(entries, left, y_ + height, id);
    height += height_of(entries);
    return text;
  }

  std::string caption() {
    std::string text;
    for (const std::string& line :
         wrapped(caption_text(chart_), static_cast<std::size_t>(width_ / kSmallCharacter))) {
      text += text_at(kMargin, y_ + kSmall, "class=\"caption\"", line);
      y_ += kLine;
    }
    return text;
  }

  const Chart& chart_;
  std::size_t columns_ = 1;
  double panel_width_ = 0, width_ = 0, y_ = 0;
  std::optional<ChartPanel> legend_;  ///< of all panels
};

}  // namespace

std::string svg_figure(const Chart& chart) {
  return Figure(chart).draw();
}

namespace {

namespace fs = std::filesystem;

constexpr const char* kInstall =
    "install it (Debian: apt-get install librsvg2-bin), or convert the SVG files with another "
    "program";

/// A format of rsvg-convert, and the size of a pixel of the SVG: 1.5 pixels, or 0.75 points.
struct ImageFormat {
  const char *format, *zoom;
};
constexpr std::array<ImageFormat, 2> kPictures = {{{"png", "1.5"}, {"pdf", "1"}}};

ProcessResult run_rsvg(const std::vector<std::string>& args, const ProcessOptions& options) {
  try {
    return run_process(args, options);
  } catch (const Error&) {
    throw Error(ExitCode::kEnvironment, "rsvg-convert cannot be started", kInstall);
  }
}

// cairo before 1.17 writes the time whatever SOURCE_DATE_EPOCH says. The length stays, so that the
// offsets in the file stay right.
std::string without_dates(std::string pdf) {
  constexpr std::string_view kDate = "19700101000000";
  for (const std::string_view key : {"/CreationDate (D:", "/ModDate (D:"})
    for (auto at = pdf.find(key); at != std::string::npos; at = pdf.find(key, at + 1))
      if (at + key.size() + kDate.size() < pdf.size())
        pdf.replace(at + key.size(), kDate.size(), kDate);
  return pdf;
}

void draw(const std::string& name, const ImageFormat& kind, const fs::path& folder) {
  const std::string format = kind.format;
  const fs::path target = folder / (name + "." + format);
  TemporaryFile picture(temporary_beside(target));
  const TemporaryFile messages(picture.path().string() + ".log");
  ProcessOptions options;
  options.working_folder = folder;
  options.stdout_path = fs::absolute(messages.path());
  options.stderr_path = fs::absolute(messages.path());
  options.environment = {"SOURCE_DATE_EPOCH=0"};
  const ProcessResult result =
      run_rsvg({"rsvg-convert", "--format", format, "--zoom", kind.zoom, "--output",
                picture.path().filename().string(), "./" + name + ".svg"},
               options);
  if (!result.succeeded() || !fs::exists(picture.path()))
    throw Error(ExitCode::kInputOutput, fmt::format("rsvg-convert ended with {}: {}", result.text(),
                                                    read_text_file(messages.path())));
  if (format == "pdf") {
    const std::string drawn = read_text_file(picture.path());
    write_file_atomically(picture.path(), without_dates(drawn));
  }
  close_file(open_for_reading(picture.path()), picture.path());
  picture.rename_to(target);
}

}  // namespace

void write_figure(const Chart& chart, const std::string& name, const fs::path& folder) {
  write_file_atomically(folder / (name + ".plot.csv"), chart_csv(chart));
  write_file_atomically(folder / (name + ".svg"), svg_figure(chart));
}

void draw_figure(const std::string& name, const fs::path& folder) {
  for (const ImageFormat& kind : kPictures)
    draw(name, kind, folder);
}

}  // namespace gradsync::report
