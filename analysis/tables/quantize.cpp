// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "analysis/figures/quantized_figures.h"
#include "analysis/tables/columns.h"
#include "analysis/tables/tables.h"

namespace gradsync::report {

namespace {

Cell count_or_nothing(std::int64_t count) {
  return count < 0 ? Cell("") : count_cell(count);
}

struct AccuracyStep {
  const Run& run;
  const QuantizedStepRow& step;

  const Quantization& all() const { return run.reader->quantization(); }
};

TableColumns<AccuracyStep> accuracy_step_columns() {
  using Row = AccuracyStep;
  const std::string data = "/quantize/step/";
  return {
      {"model", "model", kLabel, [](const Row& row) { return row.run.model; }},
      {"kind", "kind", kLabel, [](const Row& row) { return row.step.kind; }},
      {"name", "step or variant", kLabel, [](const Row& row) { return row.step.name; }, 0},
      {"weights", "weights", kLabel, [](const Row& row) { return row.step.weights; }},
      {"activations", "activations", kLabel, [](const Row& row) { return row.step.activations; }},
      {"bias", "bias", kLabel, [](const Row& row) { return row.step.bias; }},
      {"images", "n", "test images", data + "images",
       [](const Row& row) { return count_cell(row.step.images); }},
      {"correct", "right", "classified right", data + "correct",
       [](const Row& row) { return count_cell(row.step.correct); }},
      {"accuracy_percent", "accuracy %", "100 × right / n", data + "correct",
       [](const Row& row) { return Cell::of(accuracy_percent(row.step), 2); }, 0},
      {"drop_points", "drop pp", "accuracy of fp32 − this accuracy", data + "correct",
       [](const Row& row) { return Cell::of(drop_points(row.all(), row.step), 2); }, 0},
      {"agreeing", "paths agree", "images with the same logits in both paths", data + "agreeing",
       [](const Row& row) { return count_or_nothing(row.step.agreeing); }},
      {"model_bytes", "bytes", "of parameters, scales and zero points", data + "model_bytes",
       [](const Row& row) { return count_or_nothing(row.step.model_bytes); }},
      {"size_ratio", "of fp32", "bytes / bytes of fp32", data + "model_bytes",
       [](const Row& row) {
         return row.step.model_bytes < 0 ? Cell("") : Cell::of(size_ratio(row.all(), row.step), 3);
       },
       0},
      {"run", "run", kLabel, [](const Row& row) { return row.run.name; }}};
}

}  // namespace

Table make_quantize_table(const RunSet& set, const TableOptions&) {
  const auto columns = accuracy_step_columns();
  Table table = columns.table(
      "quantize", "Int8 quantization: accuracy after each step, and in variants",
      {"step: what is in integers so far; ablation: another choice, all in integers, biases too",
       "paths agree: test images for which integers in floating point and int8 kernels give "
       "the same logits, to the bit"});
  for (const Run& run : set.quantized)
    for (const QuantizedStepRow& step : run.reader->quantization().steps)
      table.add(columns.cells({run, step}), run.path.string());
  return table;
}

namespace {

struct TensorRow {
  const Run& run;
  const QuantizedTensorRow& tensor;
  const PublishedRange* published = nullptr;  ///< beside it; null: none

  /// Biases have 32 bits, in units of two scales.
  Cell published_scale(double low, double high) const {
    constexpr double kLargestInteger = 127;
    return tensor.role == "bias" ? Cell("") : Cell::of((high - low) / kLargestInteger, 6);
  }
  Cell published_cell(double PublishedRange::*value) const {
    return published == nullptr ? Cell("") : Cell::of(published->*value, 4);
  }
};

std::string tensor_dataset(const std::string& name) {
  return "/quantize/tensor/" + name;
}

/// model, layer, what (weight, bias, activation …), then `numbers`, then the run.
TableColumns<TensorRow> tensor_columns(const TableColumns<TensorRow>& numbers) {
  using Row = TensorRow;
  TableColumns<Row> columns = {
      {"model", "model", kLabel, [](const Row& row) { return row.run.model; }},
      {"layer", "layer", kLabel, [](const Row& row) { return row.tensor.layer; }},
      {"role", "what", kLabel, [](const Row& row) { return row.tensor.role; }}};
  columns.add(numbers);
  return columns.add({{"run", "run", kLabel, [](const Row& row) { return row.run.name; }}});
}

TableColumns<TensorRow> error_columns() {
  using Row = TensorRow;
  return tensor_columns(
      {{"scales", "scales", "1, or one per output channel", tensor_dataset("scales"),
        [](const Row& row) { return count_cell(row.tensor.scales); }},
       {"scale_least", "smallest scale", "of them", tensor_dataset("scale_least"),
        [](const Row& row) { return significant_cell(row.tensor.scale_least); }},
       {"scale_largest", "largest scale", "of them", tensor_dataset("scale_largest"),
        [](const Row& row) { return significant_cell(row.tensor.scale_largest); }},
       {"zero_point", "zero point", "integer that represents 0", tensor_dataset("zero_point"),
        [](const Row& row) { return Cell::of(row.tensor.zero_point, 0); }},
       {"sqnr_db", "SQNR dB", "10·log10(Σx² / Σ(x − x̂)²)", tensor_dataset("sqnr"),
        [](const Row& row) { return Cell::of(row.tensor.sqnr_db, 1); }},
       {"largest_error", "largest error", "largest |x − x̂|", tensor_dataset("largest_error"),
        [](const Row& row) { return Cell::of(row.tensor.largest_error, 5); }},
       {"clipped_percent", "clipped %", "100 × part beyond the clamped range",
        tensor_dataset("clipped"),
        [](const Row& row) { return percent_cell(row.tensor.clipped, 3); }}});
}

TableColumns<TensorRow> range_columns() {
  using Row = TensorRow;
  const auto recorded = [](const char* name, const char* head, const char* formula,
                           double QuantizedTensorRow::*value) {
    return RowColumn<Row>(name, head, formula, tensor_dataset(name),
                          [=](const Row& row) { return Cell::of(row.tensor.*value, 4); });
  };
  const auto published = [](const char* name, const char* head, double PublishedRange::*value) {
    return RowColumn<Row>(name, head, "", "",
                          [=](const Row& row) { return row.published_cell(value); });
  };
  return tensor_columns(
      {{"count", "n", "numbers", tensor_dataset("count"),
        [](const Row& row) { return count_cell(row.tensor.count); }},
       recorded("minimum", "min", "smallest", &QuantizedTensorRow::minimum),
       recorded("maximum", "max", "largest", &QuantizedTensorRow::maximum),
       recorded("sigma_low", "mean − 3σ", "mean − 3 deviations", &QuantizedTensorRow::sigma_low),
       recorded("sigma_high", "mean + 3σ", "mean + 3 deviations", &QuantizedTensorRow::sigma_high),
       {"scale_total", "(max − min)/127", "the published scale of the total range",
        tensor_dataset("maximum"),
        [](const Row& row) { return row.published_scale(row.tensor.minimum, row.tensor.maximum); }},
       {"scale_sigma", "6σ/127", "the published scale of mean ± 3 deviations",
        tensor_dataset("deviation"),
        [](const Row& row) {
          return row.published_scale(row.tensor.sigma_low, row.tensor.sigma_high);
        }},
       published("published_minimum", "published min", &PublishedRange::minimum),
       published("published_maximum", "max", &PublishedRange::maximum),
       published("published_sigma_low", "mean − 3σ", &PublishedRange::sigma_low),
       published("published_sigma_high", "mean + 3σ", &PublishedRange::sigma_high)});
}

std::vector<std::string> range_notes(const RunSet& set) {
  std::vector<std::string> all = {
      "mean ± 3σ is not clipped to the total range, as published; activation: after the ReLU of a "
      "layer; pooled: after its maximum, which the next layer takes and the study prints",
      "pixels: the calibration images as 2·pixel/255 − 1, the published study's input; input: as "
      "this network takes them, (pixel/255 − mean)/deviation per channel",
      "the published network was another training: ranges of its layers show the order of "
      "magnitude only, those of its input are the data set's"};
  for (const Run& run : set.quantized)
    all.push_back(fmt::format("{}: {} training images for calibration", run.name,
                              run.reader->option("calibration-images")));
  return all;
}

}  // namespace

Table make_quantize_layers_table(const RunSet& set, const TableOptions&) {
  const auto columns = error_columns();
  Table table = columns.table(
      "quantize-layers", "Quantization error of each layer",
      {"weights and biases: against what was trained (batch norm folded in)",
       "activations: outputs of the integer network against the fp32 network, with the errors of "
       "all layers before, over the first 100 calibration images; clipped is of all "
       "calibration images"});
  for (const Run& run : set.quantized)
    for (const QuantizedTensorRow& tensor : run.reader->quantization().tensors)
      if (tensor.scales > 0) table.add(columns.cells({run, tensor}), run.path.string());
  return table;
}

Table make_ranges_table(const RunSet& set, const TableOptions&) {
  const auto columns = range_columns();
  Table table = columns.table("ranges", "Ranges of weights and activations, in the published form",
                              range_notes(set));
  for (const Run& run : set.quantized)
    for (const char* role : {"weight", "pixels", "activation", "pooled", "bias"})
      for (const QuantizedTensorRow* tensor : tensors_of(run.reader->quantization(), role))
        table.add(columns.cells({run, *tensor, published_range(run, *tensor)}), run.path.string());
  return table;
}

}  // namespace gradsync::report
