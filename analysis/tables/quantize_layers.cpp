#include "analysis/tables/tables.h"
#include "analysis/tables/tensor_cells.h"

namespace gradsync::report {

namespace {

std::vector<Column> quantize_layers_columns() {
  return tensor_columns(
      {{"scales", "scales", false, "1, or one per output channel", tensor_dataset("scales")},
       {"scale_least", "smallest scale", false, "of them", tensor_dataset("scale_least")},
       {"scale_largest", "largest scale", false, "of them", tensor_dataset("scale_largest")},
       {"zero_point", "zero point", false, "integer that represents 0",
        tensor_dataset("zero_point")},
       {"sqnr_db", "SQNR dB", false, "10·log10(Σx² / Σ(x − x̂)²)", tensor_dataset("sqnr")},
       {"largest_error", "largest error", false, "largest |x − x̂|",
        tensor_dataset("largest_error")},
       {"clipped_percent", "clipped %", false, "100 × part beyond the clamped range",
        tensor_dataset("clipped")}});
}

void quantize_layers_add_row(Table& table, const Run& run, const QuantizedTensorRow& row) {
  add_tensor_row(
      table, run, row,
      {Cell::count(static_cast<double>(row.scales)), Cell::of(row.scale_least, 6),
       Cell::of(row.scale_largest, 6), Cell::of(row.zero_point, 0), Cell::of(row.sqnr_db, 1),
       Cell::of(row.largest_error, 5), Cell::of(1e2 * row.clipped, 3)});
}

}  // namespace

Table make_quantize_layers_table(const RunSet& set, const TableOptions&) {
  Table table{
      "quantize-layers",
      "Quantization error of each layer",
      {"weights and biases: against what was trained (batch norm folded in)",
       "activations: outputs of the integer network against the fp32 network, with the errors of "
       "all layers before, over the first 100 calibration images; clipped is of all "
       "calibration images"},
      quantize_layers_columns(),
      {}};
  for (const Run& run : set.quantized)
    for (const QuantizedTensorRow& row : run.reader->quantization().tensors)
      if (row.scales > 0) quantize_layers_add_row(table, run, row);
  return table;
}

}  // namespace gradsync::report
