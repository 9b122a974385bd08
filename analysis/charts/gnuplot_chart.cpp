#include "analysis/charts/gnuplot_chart.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/formats/formats.h"
#include "support/table.h"

namespace gradsync::report {

namespace {

constexpr int kPanelWidth = 720, kPanelHeight = 500, kLonelyWidth = 900;
constexpr int kTitleHeight = 44, kCaptionLine = 17, kCaptionMargin = 14;

/// In pixels of the PNG.
struct Layout {
  std::size_t rows = 1, columns = 1;
  int width = 0, height = 0;
  std::vector<std::string> caption;

  int caption_height() const {
    return caption.empty() ? 0 : kCaptionMargin + kCaptionLine * static_cast<int>(caption.size());
  }
};

Layout layout_of(const Chart& chart) {
  Layout layout;
  const std::size_t panels = std::max<std::size_t>(1, chart.panels.size());
  layout.columns = panels <= 1 ? 1 : panels <= 4 ? 2 : 3;
  layout.rows = (panels + layout.columns - 1) / layout.columns;
  layout.width = panels == 1 ? kLonelyWidth : kPanelWidth * static_cast<int>(layout.columns);
  layout.caption =
      wrapped(caption_text(chart), static_cast<std::size_t>(layout.width - 40) * 10 / 62);
  layout.height =
      kPanelHeight * static_cast<int>(layout.rows) + kTitleHeight + layout.caption_height();
  return layout;
}

std::string head(const Chart& chart, const Layout& layout) {
  return fmt::format(
      "# Made by gradsync-report. Draw again: gnuplot -c NAME.gnuplot png|svg|pdf PICTURE "
      "NAME.plot.csv\n"
      "kind = ARGC > 0 ? ARG1 : 'png'\n"
      "if (kind eq 'svg') {{\n"
      "  set terminal svg size {0},{1} noenhanced font 'sans,13' background '#ffffff'\n"
      "}} else {{ if (kind eq 'pdf') {{\n"
      "  set terminal pdfcairo size {2:.2f}in,{3:.2f}in noenhanced font 'sans,9' background "
      "'#ffffff'\n"
      "}} else {{\n"
      "  set terminal pngcairo size {0},{1} noenhanced font 'sans,10' background '#ffffff'\n"
      "}} }}\n"
      "if (ARGC > 1) {{ set output ARG2 }}\n"
      "data = ARG3\n"
      "set datafile separator ','\n"
      "set border 3 lc rgb '#444444'\n"
      "set tics nomirror\n"
      "set grid lc rgb '#dddddd' lt 1\n"
      "set key outside below center horizontal Left reverse samplen 3 spacing 1.1\n"
      "set xlabel {4}\n"
      "set ylabel {5}\n"
      "set tmargin 4\n"
      "set multiplot\n"
      "set label 1 {6} at screen 0.5, screen {7:.4f} center font ',14' front\n",
      layout.width, layout.height, layout.width / 90.0, layout.height / 90.0,
      gnuplot_text(chart.x.label), gnuplot_text(chart.y.label), gnuplot_text(chart.title),
      1 - 0.6 * kTitleHeight / layout.height);
}

std::string caption_script(const Layout& layout) {
  std::string text;
  for (std::size_t line = 0; line < layout.caption.size(); ++line) {
    const double above = kCaptionLine * static_cast<double>(layout.caption.size() - line) - 4;
    text += fmt::format(
        "set label {} {} at screen {:.4f}, screen {:.4f} left font ',9' tc rgb '#444444' front\n",
        line + 2, gnuplot_text(layout.caption[line]), 20.0 / layout.width, above / layout.height);
  }
  return text;
}

std::string place(const Layout& layout, std::size_t panel) {
  const double height = static_cast<double>(kPanelHeight) / layout.height;
  const double bottom = static_cast<double>(layout.caption_height()) / layout.height;
  const std::size_t rows_above = panel / layout.columns;
  const auto row = static_cast<double>(layout.rows - 1 - rows_above);
  const auto column = static_cast<double>(panel % layout.columns);
  const double width = 1.0 / static_cast<double>(layout.columns);
  return fmt::format("set origin {:.5f},{:.5f}\nset size {:.5f},{:.5f}\n", column * width,
                     bottom + row * height, width, height);
}

std::size_t longest_tick(const ChartPanel& panel) {
  std::size_t longest = 0;
  for (const ChartTick& tick : panel.x_ticks)
    longest = std::max(longest, display_width(tick.text));
  return longest;
}

/// How the legend is laid out below a panel, which is `width` pixels wide.
struct Legend {
  std::size_t columns = 1, rows = 0;
};

Legend legend_of(const ChartPanel& panel, int width) {
  constexpr std::size_t kCharacter = 7, kSample = 62, kEdges = 60;
  std::size_t entries = 0, longest = 0;
  for (const ChartSeries& series : panel.series) {
    entries += series.label.empty() ? 0 : 1;
    longest = std::max(longest, display_width(series.label));
  }
  const std::size_t fit =
      (static_cast<std::size_t>(width) - kEdges) / (kSample + kCharacter * longest);
  const std::size_t columns = std::clamp<std::size_t>(fit, 1, std::max<std::size_t>(1, entries));
  return {columns, (entries + columns - 1) / columns};
}

// In lines of text: room for the axis, its names if they are slanted, and the legend.
std::string margin_script(const ChartPanel& panel, const Layout& layout) {
  const Legend legend = legend_of(panel, layout.width / static_cast<int>(layout.columns));
  const double slanted = panel.slanted ? 0.34 * static_cast<double>(longest_tick(panel)) : 0;
  return fmt::format("set key maxcols {}\nset bmargin {:.2f}\n", legend.columns,
                     4.2 + slanted + 1.15 * static_cast<double>(legend.rows));
}

std::string ticks_script(const Chart& chart, const ChartPanel& panel) {
  if (panel.x_ticks.empty())
    return chart.x.log > 0 ? fmt::format("set xtics {}\n", chart.x.log) : "set xtics autofreq\n";
  std::string ticks;
  for (const ChartTick& tick : panel.x_ticks)
    ticks += (ticks.empty() ? "" : ", ") + gnuplot_text(tick.text) + " " + machine_number(tick.at);
  return fmt::format("set xtics {} ({})\n", panel.slanted ? "rotate by 45 right" : "norotate",
                     ticks);
}

// Two strings joined by a line break in double quotes: single quotes know no escapes.
std::string title_script(const ChartPanel& panel) {
  return "set title " + gnuplot_text(panel.title) +
         (panel.subtitle.empty() ? "" : ".\"\\n\"." + gnuplot_text(panel.subtitle)) + "\n";
}

std::string axes_script(const Chart& chart, const ChartPanel& panel) {
  const ChartRange x = x_range(chart, panel), y = y_range(chart, panel);
  std::string text;
  if (chart.x.log > 0) text += fmt::format("set logscale x {}\n", chart.x.log);
  if (chart.y.log > 0) text += fmt::format("set logscale y {}\n", chart.y.log);
  return text + fmt::format("set xrange [{}:{}]\nset yrange [{}:{}]\n", machine_number(x.from),
                            machine_number(x.to), machine_number(y.from), machine_number(y.to));
}

/// Size and transparency of faint points: the more there are, the fainter, so that lines show.
struct PointStyle {
  double size;
  const char* alpha;
};

PointStyle point_style(std::size_t points) {
  if (points <= 100) return {0.55, "a8"};
  if (points <= 500) return {0.4, "c4"};
  return {0.3, "dc"};
}

// Not yerrorbars, which leave a white hole where the value is.
std::string whiskers(const ChartSeries& series, const std::string& rows) {
  return fmt::format(
      "{}:5:(0):($6-$5) with vectors heads nofilled size screen 0.004,90 lw 1.2 lc rgb '{}' ", rows,
      series.color);
}

std::string intervals(const ChartSeries& series, const std::string& rows) {
  const bool any =
      std::any_of(series.points.begin(), series.points.end(),
                  [](const ChartPoint& point) { return std::isfinite(point.low + point.high); });
  if (!any) return "";
  return whiskers(series, rows) + "notitle";
}

/// The elements of a plot command that draw one series; the first carries the title.
std::vector<std::string> drawn(const ChartSeries& series, const std::string& rows) {
  const std::string title =
      series.label.empty() ? "notitle" : "title " + gnuplot_text(series.label);
  const std::string line =
      fmt::format("lw {:.1f} dt {} lc rgb '{}' ", series.width, series.dash, series.color);
  const PointStyle faint = point_style(series.points.size());
  const std::string bar =
      fmt::format("{}:4:($3-{}):($3+{}):5:6 with boxxyerror ", rows, kBarHalfWidth, kBarHalfWidth);
  switch (series.mark) {
    case Mark::kLine:
      return {rows + ":4 with lines " + line + title};
    case Mark::kPoints:
      return {fmt::format("{}:4 with points pt 7 ps {} lc rgb '#{}{}' {}", rows, faint.size,
                          faint.alpha, series.color.substr(1), title)};
    case Mark::kLinePoints:
      return {intervals(series, rows), rows + ":4 with linespoints pt 7 ps 0.8 " + line + title};
    case Mark::kMarkers:
      return {intervals(series, rows),
              fmt::format("{}:4 with points pt 6 ps 1.1 lw 1.5 lc rgb '{}' {}", rows, series.color,
                          title)};
    case Mark::kBar:
      return {bar + fmt::format("fs solid 1.0 noborder lc rgb '{}' {}", series.color, title)};
    case Mark::kHatchedBar:
      return {bar +
              fmt::format("fs transparent pattern 4 noborder lc rgb '{}' {}", series.color, title)};
    case Mark::kWhisker:
      return {whiskers(series, rows) + title};
  }
  return {};
}

std::string plot_command(const ChartPanel& panel, std::size_t number) {
  std::string elements;
  for (std::size_t s = 0; s < panel.series.size(); ++s) {
    const std::string rows =
        fmt::format("data skip 1 using ($1=={} && $2=={} ? $3 : 1/0)", number, s + 1);
    for (const std::string& element : drawn(panel.series[s], rows))
      if (!element.empty()) elements += (elements.empty() ? "" : ", \\\n  ") + element;
  }
  return "plot " + elements + "\n";
}

std::string panel_script(const Chart& chart, const Layout& layout, std::size_t index) {
  const ChartPanel& panel = chart.panels[index];
  std::string text = place(layout, index) + title_script(panel) + axes_script(chart, panel) +
                     ticks_script(chart, panel) + margin_script(panel, layout) +
                     plot_command(panel, index + 1);
  if (index > 0) return text;
  return text + fmt::format("do for [i=1:{}] {{ unset label i }}\n", layout.caption.size() + 1);
}

}  // namespace

std::string gnuplot_text(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'') result += '\'';
    result += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return result + "'";
}

std::vector<std::string> wrapped(const std::string& text, std::size_t width) {
  std::vector<std::string> lines;
  std::string word, line;
  const auto put = [&] {
    if (!line.empty() && display_width(line) + 1 + display_width(word) > width) {
      lines.push_back(line);
      line.clear();
    }
    line += (line.empty() || word.empty() ? "" : " ") + word;
    word.clear();
  };
  for (const char c : text)
    if (c == ' ')
      put();
    else
      word += c;
  put();
  if (!line.empty()) lines.push_back(line);
  return lines;
}

Figure gnuplot_figure(const Chart& chart) {
  const Layout layout = layout_of(chart);
  std::string script = head(chart, layout) + caption_script(layout);
  for (std::size_t panel = 0; panel < chart.panels.size(); ++panel)
    script += panel_script(chart, layout, panel);
  return {chart_csv(chart), script + "unset multiplot\n"};
}

}  // namespace gradsync::report
