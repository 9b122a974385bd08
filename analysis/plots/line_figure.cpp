#include "analysis/plots/line_figure.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "analysis/formats/formats.h"

namespace gradsync {

namespace {

constexpr double kHeadroom = 1.15;     // above the quantile, if the axis is cut there
constexpr double kWorthCutting = 1.5;  // times that end: below it all points are shown
constexpr int kPanelWidth = 720, kPanelHeight = 500, kTitleHeight = 40;

struct Layout {
  std::size_t rows, columns;
};

Layout layout_of(std::size_t panels) {
  const std::size_t columns = panels <= 1 ? 1 : panels <= 4 ? 2 : 3;
  return {(panels + columns - 1) / columns, columns};
}

// The numbers stand first, so that the script can count columns whatever the names hold.
std::string csv_of(const LineFigure& figure) {
  Table table{"", "", {}, {}, {}};
  for (const std::string& name :
       {std::string("series"), std::string("iteration"), figure.value_name,
        figure.value_name + "_moving_median", std::string("ranks"), std::string("batch_per_rank"),
        std::string("batch_global"), std::string("mode"), std::string("model"), std::string("run")})
    table.columns.push_back({name, name});
  double number = 0;
  for (const Panel& panel : figure.panels)
    for (const Series& series : panel.series) {
      ++number;
      const Run& run = *series.run;
      for (std::size_t i = 0; i < series.value.size(); ++i)
        table.add(
            {Cell::count(number), Cell::count(series.iteration[i]), Cell::of(series.value[i], 6),
             Cell::of(series.smooth[i], 6), Cell::count(static_cast<double>(run.ranks)),
             Cell::count(static_cast<double>(run.batch_per_rank)),
             Cell::count(static_cast<double>(run.batch_global)), run.mode, run.model, run.name});
    }
  return render_csv(table);
}

// In lines of text: room for the axis and for the longest legend, the same below every panel.
double bottom_margin(const LineFigure& figure) {
  std::size_t most = 1;
  for (const Panel& panel : figure.panels)
    most = std::max(most, panel.series.size());
  const std::size_t legend_lines = (most + 3) / 4;
  return 4 + 1.1 * static_cast<double>(legend_lines);
}

std::string head(const LineFigure& figure, const Layout& layout) {
  const int width =
      kPanelWidth * static_cast<int>(layout.columns) + (layout.columns == 1 ? 180 : 0);
  const int height = kPanelHeight * static_cast<int>(layout.rows) + kTitleHeight;
  return fmt::format(
      "# Made by gradsync-report. Draw again: gnuplot -c NAME.gnuplot png|svg PICTURE NAME.csv\n"
      "kind = ARGC > 0 ? ARG1 : 'png'\n"
      "if (kind eq 'svg') {{\n"
      "  set terminal svg size {0},{1} noenhanced font 'sans,13' background '#ffffff'\n"
      "}} else {{\n"
      "  set terminal pngcairo size {0},{1} noenhanced font 'sans,10' background '#ffffff'\n"
      "}}\n"
      "if (ARGC > 1) {{ set output ARG2 }}\n"
      "data = ARG3\n"
      "set datafile separator ','\n"
      "set border 3 lc rgb '#444444'\n"
      "set tics nomirror\n"
      "set grid lc rgb '#dddddd' lt 1\n"
      "set key outside below center horizontal Left reverse samplen 3 spacing 1.1\n"
      "set xlabel 'iteration'\n"
      "set ylabel {2}\n"
      "set tmargin 4\n"
      "set bmargin {6}\n"
      "set multiplot layout {3},{4} title {5} font ',14'\n",
      width, height, gnuplot_text(figure.y_label), layout.rows, layout.columns,
      gnuplot_text(figure.title), bottom_margin(figure));
}

double last_iteration(const Panel& panel) {
  double last = 1;
  for (const Series& series : panel.series)
    last = std::max(last, series.iteration.back());
  return last;
}

std::string subtitle(const Panel& panel, const Clip& clip) {
  std::string text;
  if (clip.above > 0)
    text = fmt::format("y axis cut at {} x the 98 % quantile after warm-up: {} of {} points above",
                       kHeadroom, clip.above, clip.points);
  if (panel.left_out > 0)
    text += fmt::format("{}{} more runs not shown", text.empty() ? "" : "; ", panel.left_out);
  return text;
}

// Two strings in double quotes joined by a line break: single quotes know no escapes.
std::string title_text(const Panel& panel, const Clip& clip) {
  const std::string below = subtitle(panel, clip);
  return gnuplot_text(panel.title) + (below.empty() ? "" : ".\"\\n\"." + gnuplot_text(below));
}

double line_width(const LineFigure& figure, const Panel& panel, std::size_t series) {
  return 2 + (figure.coincide ? 2.0 * static_cast<double>(panel.series.size() - 1 - series) : 0);
}

/// Size and transparency of the points: the more there are, the fainter, so that the line shows.
struct PointStyle {
  double size;
  const char* alpha;
};

PointStyle point_style(std::size_t points) {
  if (points <= 100) return {0.55, "a8"};
  if (points <= 500) return {0.4, "c4"};
  return {0.3, "dc"};
}

std::string plot_command(const LineFigure& figure, const Panel& panel, std::size_t first_series) {
  std::string points, lines;
  for (std::size_t i = 0; i < panel.series.size(); ++i) {
    const Series& series = panel.series[i];
    const std::string rows = fmt::format("data skip 1 using ($1=={} ? $2 : 1/0)", first_series + i);
    const PointStyle style = point_style(series.value.size());
    points += fmt::format("{}:3 with points pt 7 ps {} lc rgb '#{}{}' notitle, \\\n  ", rows,
                          style.size, style.alpha, series.color.substr(1));
    lines += fmt::format("{}{}:4 with lines lw {:.1f} dt {} lc rgb '{}' title {}",
                         i ? ", \\\n  " : "", rows, line_width(figure, panel, i), series.dash,
                         series.color, gnuplot_text(series.label));
  }
  return "plot " + points + lines + "\n";
}

std::string panel_script(const LineFigure& figure, const Panel& panel, std::size_t first_series) {
  const Clip clip = clip_of(panel);
  const std::string bottom = figure.from_zero ? "0" : "*";
  const std::string top = std::isnan(clip.top) ? "*" : machine_number(clip.top);
  return fmt::format("set title {}\nset xrange [0:{}]\nset yrange [{}:{}]\n{}",
                     title_text(panel, clip), machine_number(1.02 * last_iteration(panel)), bottom,
                     top, plot_command(figure, panel, first_series));
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

Clip clip_of(const Panel& panel) {
  Clip clip;
  double largest = 0;
  for (const Series& series : panel.series) {
    clip.top = std::max(clip.top, kHeadroom * series.steady_top);
    for (const double value : series.value)
      if (std::isfinite(value)) largest = std::max(largest, value);
  }
  for (const Series& series : panel.series)
    for (const double value : series.value) {
      clip.points += std::isfinite(value) ? 1 : 0;
      clip.above += value > clip.top ? 1 : 0;
    }
  if (clip.top > 0 && largest > kWorthCutting * clip.top) return clip;
  return {std::numeric_limits<double>::quiet_NaN(), 0, clip.points};
}

Figure render(const LineFigure& figure) {
  const Layout layout = layout_of(figure.panels.size());
  std::string script = head(figure, layout);
  std::size_t series = 1;
  for (const Panel& panel : figure.panels) {
    script += panel_script(figure, panel, series);
    series += panel.series.size();
  }
  return {csv_of(figure), script + "unset multiplot\n"};
}

}  // namespace gradsync
