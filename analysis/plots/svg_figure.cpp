#include "analysis/plots/svg_figure.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "analysis/plots/html.h"
#include "analysis/plots/svg_chart.h"
#include "base/table.h"

namespace gradsync::report {

namespace {

// Pixels. Text is measured by its number of characters: the widths of the font are not known here.
constexpr double kMargin = 16, kGap = 28, kTitle = 30, kHead = 20, kLine = 16,
                 kLegendCharacter = 6.5, kTitleCharacter = 8.8;
constexpr double kKeyWidth = 22, kKeyRoom = 30, kKeyGap = 18, kSmall = 11, kSmallCharacter = 6.2;

constexpr const char* kStyle =
    "text{font-family:'DejaVu Sans',Verdana,sans-serif;font-size:12px;fill:#222}"
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

/// Where the samples of a legend lie in rows of at most `width`.
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
      const auto known =
          std::find_if(all.series.begin(), all.series.end(),
                       [&](const ChartSeries& one) { return one.label == series.label; });
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
    if (!panel.subtitle.empty()) {
      text += text_at(left, y_ + height + 10, "class=\"caption\"", panel.subtitle);
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

}  // namespace gradsync::report
