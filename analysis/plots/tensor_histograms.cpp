#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "analysis/figures/quantized_figures.h"
#include "analysis/plots/plots.h"

namespace gradsync::report {

namespace {

constexpr const char* kBars = "#0072b2";
constexpr const char* kLimits = "#d55e00";
/// Empty bins of a logarithmic axis lie here, below one number.
constexpr double kFloor = 0.5;
constexpr std::int32_t kLowestInteger = -128;

/// What one picture shows.
struct Picture {
  const char* role;  ///< null: what the published study draws
  const char* title;
  const char* x_label;
  bool integers;
  bool logarithmic;
  std::size_t bins = kHistogramBins;  ///< of real numbers
};

/// One run: several networks would not fit a picture. The one with the fewest layers; of those the
/// one with the most tensors, which has biases.
const Run* drawn_run(const RunSet& set) {
  const auto size = [](const Run& run) {
    const Quantization& of = run.reader->quantization();
    return std::pair(tensors_of(of, "weight").size(),
                     -static_cast<std::ptrdiff_t>(of.tensors.size()));
  };
  const auto drawn =
      std::min_element(set.quantized.begin(), set.quantized.end(),
                       [&](const Run& a, const Run& b) { return size(a) < size(b); });
  return drawn == set.quantized.end() ? nullptr : &*drawn;
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
ChartSeries sigma_line(double x, double top, const char* label, bool logarithmic) {
  const double floor = logarithmic ? kFloor : 0;
  return {label, Mark::kLine, kLimits, 2, 1.5, {{x, floor}, {x, top}}};
}

/// Neighbors added up until `bins` are left, which divides their number.
std::vector<std::int64_t> with_bins(const std::vector<std::int64_t>& counts, std::size_t bins) {
  std::vector<std::int64_t> sums(bins);
  for (std::size_t bin = 0; bin < counts.size(); ++bin)
    sums[bin * bins / counts.size()] += counts[bin];
  return sums;
}

ChartPanel real_panel(const QuantizedTensorRow& row, const Picture& picture) {
  const bool logarithmic = picture.logarithmic;
  const std::vector<std::int64_t> counts = with_bins(row.histogram, picture.bins);
  ChartPanel panel{row.layer,
                   fmt::format("{:.4g} to {:.4g}, mean {:.3g}, σ {:.3g}, n = {}", row.minimum,
                               row.maximum, row.mean, row.deviation, row.count),
                   {}};
  panel.series.push_back({fmt::format("{} bins", counts.size()), Mark::kLine, kBars, 1, 1.5,
                          outline(counts, row.minimum, row.maximum, logarithmic)});
  panel.series.push_back(sigma_line(row.sigma_low, tallest(counts), "mean ± 3σ", logarithmic));
  panel.series.push_back(sigma_line(row.sigma_high, tallest(counts), "", logarithmic));
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

std::vector<std::string> tensor_histograms_caption(const RunSet& set, const Run& run,
                                                   const Picture& picture) {
  std::vector<std::string> sentences = {fmt::format("{}: {}.", run.name, run.model)};
  if (picture.role == nullptr)
    sentences.push_back(
        fmt::format("{} training images as 2·pixel/255 − 1, and what the next layer takes: after "
                    "ReLU and maximum.",
                    run.reader->option("calibration-images")));
  else if (std::string(picture.role) == "activation")
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

/// The images, then what each layer gives to the next: after its maximum, where there is one.
std::vector<const QuantizedTensorRow*> published_form(const Quantization& of) {
  std::vector<const QuantizedTensorRow*> rows = tensors_of(of, "pixels");
  const std::vector<const QuantizedTensorRow*> pooled = tensors_of(of, "pooled");
  for (const QuantizedTensorRow* row : tensors_of(of, "activation")) {
    const auto after =
        std::find_if(pooled.begin(), pooled.end(),
                     [&](const QuantizedTensorRow* one) { return one->layer == row->layer; });
    if (row->layer != "input") rows.push_back(after == pooled.end() ? row : *after);
  }
  return rows;
}

std::optional<Chart> histograms(const RunSet& set, const Picture& picture) {
  const Run* run = drawn_run(set);
  if (run == nullptr) return std::nullopt;
  Chart chart{fmt::format("{}: {}", run->model, picture.title),
              tensor_histograms_caption(set, *run, picture),
              {"value", picture.x_label, "", 0, false},
              {"count", "count", "", picture.logarithmic ? 10.0 : 0, !picture.logarithmic},
              {}};
  const Quantization& of = run->reader->quantization();
  for (const QuantizedTensorRow* row :
       picture.role == nullptr ? published_form(of) : tensors_of(of, picture.role)) {
    if (picture.integers && row->scales == 0) continue;
    chart.panels.push_back(picture.integers ? integer_panel(*row, picture.logarithmic)
                                            : real_panel(*row, picture));
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

std::optional<Chart> make_activations_published_plot(const RunSet& set) {
  constexpr std::size_t kPublishedBins = 30;
  return histograms(set, {nullptr, "inputs of the layers, in the published form", "value", false,
                          false, kPublishedBins});
}

std::optional<Chart> make_activations_int8_plot(const RunSet& set) {
  return histograms(set, {"activation", "activations as integers", "integer", true, true});
}

std::optional<Chart> make_bias_plot(const RunSet& set) {
  return histograms(set, {"bias", "biases", "bias", false, false});
}

}  // namespace gradsync::report
