#include <fmt/format.h>

#include "analysis/figures/quantized_figures.h"
#include "analysis/tables/tables.h"

namespace gradsync::report {

namespace {

std::vector<Column> quantize_columns() {
  const std::string step = "/quantize/step/";
  std::vector<Column> result = {
      {"model", "model", true},
      {"kind", "kind", true},
      {"name", "step or variant", true},
      {"weights", "weights", true},
      {"activations", "activations", true},
      {"bias", "bias", true},
      {"images", "n", false, "test images", step + "images"},
      {"correct", "right", false, "classified right", step + "correct"},
      {"accuracy_percent", "accuracy %", false, "100 × right / n", step + "correct"},
      {"drop_points", "drop pp", false, "accuracy of fp32 − this accuracy", step + "correct"},
      {"agreeing", "paths agree", false, "images with the same logits in both paths",
       step + "agreeing"},
      {"model_bytes", "bytes", false, "of parameters, scales and zero points",
       step + "model_bytes"},
      {"size_ratio", "of fp32", false, "bytes / bytes of fp32", step + "model_bytes"},
      {"run", "run", true}};
  keep(result, {"name", "accuracy_percent", "drop_points", "size_ratio"});
  return result;
}

Cell count_or_nothing(std::int64_t count) {
  return count < 0 ? Cell("") : Cell::count(static_cast<double>(count));
}

void add_run(Table& table, const Run& run) {
  const Quantization& of = run.reader->quantization();
  for (const QuantizedStepRow& row : of.steps)
    table.add({run.model, row.kind, row.name, row.weights, row.activations, row.bias,
               Cell::count(static_cast<double>(row.images)),
               Cell::count(static_cast<double>(row.correct)), Cell::of(accuracy_percent(row), 2),
               Cell::of(drop_points(of, row), 2), count_or_nothing(row.agreeing),
               count_or_nothing(row.model_bytes),
               row.model_bytes < 0 ? Cell("") : Cell::of(size_ratio(of, row), 3), run.name},
              run.path.string());
}

}  // namespace

Table make_quantize_table(const RunSet& set, const TableOptions&) {
  Table table{
      "quantize",
      "Int8 quantization: accuracy after each step, and in variants",
      {"step: what is in integers so far; ablation: another choice, all in integers, biases too",
       "paths agree: test images for which integers in floating point and int8 kernels give "
       "the same logits, to the bit"},
      quantize_columns(),
      {}};
  for (const Run& run : set.quantized)
    add_run(table, run);
  return table;
}

}  // namespace gradsync::report
