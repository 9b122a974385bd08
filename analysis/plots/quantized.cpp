// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "analysis/figures/quantized_figures.h"
#include "analysis/plots/plots.h"
#include "base/parse.h"

namespace gradsync::report {

namespace {

constexpr const char* kSteps = "#0072b2";
constexpr const char* kVariants = "#e69f00";

/// Bars at 1, 2, 3, … with names below them.
class BarPanel {
 public:
  explicit BarPanel(std::string title) { panel_.title = std::move(title); }

  std::size_t add_series(const char* label, const char* color) {
    panel_.series.push_back({label, Mark::kBar, color, 1, 2, {}});
    return panel_.series.size() - 1;
  }

  void add(std::size_t series, const std::string& name, double value) {
    const double x = static_cast<double>(panel_.x_ticks.size() + 1);
    panel_.x_ticks.push_back({x, name});
    panel_.series[series].points.push_back(
        {x, value, std::fmin(0, value), std::fmax(0, value), name});
  }

  ChartPanel finish() {
    panel_.slanted = true;
    return std::move(panel_);
  }

 private:
  ChartPanel panel_;
};

ChartPanel accuracy_panel(const Run& run) {
  const Quantization& of = run.reader->quantization();
  BarPanel panel(fmt::format("{}, fp32: {:.2f} %", run.model,
                             of.steps.empty() ? kNotMeasured : accuracy_percent(of.steps.front())));
  const auto is_step = [](const QuantizedStepRow& row) { return row.kind == "step"; };
  const std::size_t steps = panel.add_series("steps", kSteps);
  const bool varies = !std::all_of(of.steps.begin(), of.steps.end(), is_step);
  const std::size_t variants = varies ? panel.add_series("variants", kVariants) : steps;
  for (const QuantizedStepRow& row : of.steps)
    if (row.name != "fp32")
      panel.add(is_step(row) ? steps : variants, row.name, drop_points(of, row));
  return panel.finish();
}

ChartPanel error_panel(const Run& run) {
  BarPanel panel(run.model);
  const std::size_t bars = panel.add_series("integers against fp32", kSteps);
  for (const QuantizedTensorRow* row : tensors_of(run.reader->quantization(), "activation"))
    if (row->scales > 0) panel.add(bars, row->layer, row->sqnr_db);
  return panel.finish();
}

std::string images_text(const RunSet& set) {
  const auto& steps = set.quantized.front().reader->quantization().steps;
  return steps.empty() ? "no" : std::to_string(steps.front().images);
}

}  // namespace

std::optional<Chart> make_accuracy_plot(const RunSet& set) {
  if (set.quantized.empty()) return std::nullopt;
  Chart chart{"Accuracy lost by quantization",
              {fmt::format("Percentage points below fp32 on {} test images; below 0: gained.",
                           images_text(set))},
              {"place", "", "", 0, false},
              {"drop_points", "accuracy drop (percentage points)", "pp", 0, true},
              {}};
  for (const Run& run : set.quantized)
    chart.panels.push_back(accuracy_panel(run));
  return chart;
}

std::optional<Chart> make_inference_plot(const RunSet& set) {
  if (set.quantized.empty()) return std::nullopt;
  Chart chart{
      "Quantization error of each layer",
      {"Signal to quantization noise over the first 100 calibration images, with the errors "
       "of all layers before."},
      {"place", "", "", 0, false},
      {"sqnr_db", "SQNR (dB)", "dB", 0, true},
      {}};
  for (const Run& run : set.quantized)
    chart.panels.push_back(error_panel(run));
  return chart;
}

namespace {

constexpr const char* kBars = "#0072b2";
constexpr const char* kLimits = "#d55e00";
/// Empty bins of a logarithmic axis lie here, below one number.
constexpr double kFloor = 0.5;
constexpr std::int32_t kLowestInteger = -128;

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
  const auto drawn = std::ranges::min_element(
      set.quantized, [&](const Run& a, const Run& b) { return size(a) < size(b); });
  return drawn == set.quantized.end() ? nullptr : &*drawn;
}

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
  return static_cast<double>(*std::ranges::max_element(counts));
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

std::vector<std::string> caption_of(const RunSet& set, const Run& run, const Picture& picture) {
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
  if (set.quantized.size() > 1)
    sentences.push_back(
        fmt::format("Not drawn: {}.", count_text(set.quantized.size() - 1, "other network")));
  return sentences;
}

/// The images, then what each layer gives to the next: after its maximum, where there is one.
std::vector<const QuantizedTensorRow*> published_form(const Quantization& of) {
  std::vector<const QuantizedTensorRow*> rows = tensors_of(of, "pixels");
  const std::vector<const QuantizedTensorRow*> pooled = tensors_of(of, "pooled");
  for (const QuantizedTensorRow* row : tensors_of(of, "activation")) {
    const auto after = std::ranges::find(pooled, row->layer, &QuantizedTensorRow::layer);
    if (row->layer != "input") rows.push_back(after == pooled.end() ? row : *after);
  }
  return rows;
}

std::optional<Chart> histograms(const RunSet& set, const Picture& picture) {
  const Run* run = drawn_run(set);
  if (run == nullptr) return std::nullopt;
  Chart chart{fmt::format("{}: {}", run->model, picture.title),
              caption_of(set, *run, picture),
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
