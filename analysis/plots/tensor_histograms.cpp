#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/metrics/quantized_figures.h"
#include "analysis/plots/plots.h"

namespace gradsync::report {

namespace {

constexpr const char* kBars = "#0072b2";
constexpr const char* kLimits = "#d55e00";
/// Empty bins of a logarithmic axis lie here, below one number.
constexpr double kFloor = 0.5;
constexpr std::int32_t kLowestInteger = -128;

/// One run: several networks would not fit a picture. The one with the fewest tensors.
const Run* drawn_run(const RunSet& set) {
  const auto fewest =
      std::min_element(set.quantized.begin(), set.quantized.end(), [](const Run& a, const Run& b) {
        return a.reader->quantization().tensors.size() < b.reader->quantization().tensors.size();
      });
  return fewest == set.quantized.end() ? nullptr : &*fewest;
}

/// The outline of bins of equal width.
std::vector<ChartPoint> outline(const std::vector<std::int64_t>& counts, double low, double high,
                                bool logarithmic) {
  std::vector<ChartPoint> points;
  const double width = (high - low) / static_cast<double>(counts.size());
  const double floor = logarithmic ? kFloor : 0;
  points.push_back({low, floor});
  for (std::size_t bin = 0; bin < counts.size(); ++bin) {
    const double left = low + width * static_cast<double>(bin);
    const double count = std::max(floor, static_cast<double>(counts[bin]));
    points.push_back({left, count});
    points.push_back({left + width, count});
  }
  points.push_back({high, floor});
  return points;
}

double tallest(const std::vector<std::int64_t>& counts) {
  return static_cast<double>(*std::max_element(counts.begin(), counts.end()));
}

/// One end of mean ± 3σ as a vertical line.
ChartSeries sigma_line(const QuantizedTensorRow& row, double x, const char* label,
                       bool logarithmic) {
  const double floor = logarithmic ? kFloor : 0;
  return {label, Mark::kLine, kLimits, 2, 1.5, {{x, floor}, {x, tallest(row.histogram)}}};
}

ChartPanel real_panel(const QuantizedTensorRow& row, bool logarithmic) {
  ChartPanel panel{row.layer,
                   fmt::format("{:.4g} to {:.4g}, mean {:.3g}, σ {:.3g}, n = {}", row.minimum,
                               row.maximum, row.mean, row.deviation, row.count),
                   {}};
  panel.series.push_back({"60 bins", Mark::kLine, kBars, 1, 1.5,
                          outline(row.histogram, row.minimum, row.maximum, logarithmic)});
  panel.series.push_back(sigma_line(row, row.sigma_low, "mean ± 3σ", logarithmic));
  panel.series.push_back(sigma_line(row, row.sigma_high, "", logarithmic));
  return panel;
}

std::string scale_text(const QuantizedTensorRow& row) {
  if (row.scales == 1) return fmt::format("scale {:.4g}", row.scale_least);
  return fmt::format("{} scales, {:.3g} to {:.3g}", row.scales, row.scale_least, row.scale_largest);
}

ChartPanel integer_panel(const QuantizedTensorRow& row, bool logarithmic) {
  ChartPanel panel{row.layer,
                   fmt::format("{}, SQNR {:.1f} dB, {:.3g} % clipped", scale_text(row), row.sqnr_db,
                               1e2 * row.clipped),
                   {}};
  panel.series.push_back({"integers", Mark::kLine, kBars, 1, 1.5,
                          outline(row.integers, kLowestInteger - 0.5, 127.5, logarithmic)});
  return panel;
}

/// What one picture shows.
struct Picture {
  const char* role;
  const char* title;
  const char* x_label;
  bool integers;
  bool logarithmic;
};

std::vector<std::string> tensor_histograms_caption(const RunSet& set, const Run& run,
                                                   const Picture& picture) {
  std::vector<std::string> sentences = {fmt::format("{}: {}.", run.name, run.model)};
  if (std::string(picture.role) == "activation")
    sentences.push_back(picture.integers
                            ? "The first 100 calibration images."
                            : fmt::format("{} training images, after each ReLU, before pooling.",
                                          run.reader->option("calibration-images")));
  if (picture.logarithmic) sentences.push_back("Logarithmic: empty bins lie below 1.");
  if (set.quantized.size() == 2) sentences.push_back("1 other network is not drawn.");
  if (set.quantized.size() > 2)
    sentences.push_back(fmt::format("{} other networks are not drawn.", set.quantized.size() - 1));
  return sentences;
}

std::optional<Chart> histograms(const RunSet& set, const Picture& picture) {
  const Run* run = drawn_run(set);
  if (run == nullptr) return std::nullopt;
  Chart chart{fmt::format("{}: {}", run->model, picture.title),
              tensor_histograms_caption(set, *run, picture),
              {"value", picture.x_label, "", 0, false},
              {"count", "count", "", picture.logarithmic ? 10.0 : 0, !picture.logarithmic},
              {}};
  for (const QuantizedTensorRow* row : tensors_of(run->reader->quantization(), picture.role)) {
    if (picture.integers && row->scales == 0) continue;
    chart.panels.push_back(picture.integers ? integer_panel(*row, picture.logarithmic)
                                            : real_panel(*row, picture.logarithmic));
  }
  if (chart.panels.empty()) return std::nullopt;
  return chart;
}

}  // namespace

std::optional<Chart> make_weights_plot(const RunSet& set) {
  return histograms(set, {"weight", "weights of each layer", "weight", false, false});
}

std::optional<Chart> make_weights_int8_plot(const RunSet& set) {
  return histograms(set, {"weight", "weights as integers", "integer", true, false});
}

std::optional<Chart> make_activations_plot(const RunSet& set) {
  return histograms(set, {"activation", "input and output of each layer", "value", false, true});
}

std::optional<Chart> make_activations_int8_plot(const RunSet& set) {
  return histograms(set, {"activation", "activations as integers", "integer", true, true});
}

std::optional<Chart> make_bias_plot(const RunSet& set) {
  return histograms(set, {"bias", "biases", "bias", false, false});
}

}  // namespace gradsync::report
