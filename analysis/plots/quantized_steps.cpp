#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/quantized_figures.h"
#include "analysis/plots/plots.h"

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
  const std::size_t steps = panel.add_series("steps", kSteps);
  const std::size_t variants = panel.add_series("variants", kVariants);
  for (const QuantizedStepRow& row : of.steps)
    if (row.name != "fp32")
      panel.add(row.kind == "step" ? steps : variants, row.name, drop_points(of, row));
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

}  // namespace gradsync::report
