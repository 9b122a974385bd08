#include <fmt/format.h>

#include "analysis/figures/quantized_figures.h"
#include "analysis/tables/tables.h"
#include "analysis/tables/tensor_cells.h"

namespace gradsync::report {

namespace {

std::vector<Column> ranges_columns() {
  return tensor_columns(
      {{"count", "n", false, "numbers", tensor_dataset("count")},
       {"minimum", "min", false, "smallest", tensor_dataset("minimum")},
       {"maximum", "max", false, "largest", tensor_dataset("maximum")},
       {"sigma_low", "mean − 3σ", false, "mean − 3 deviations", tensor_dataset("sigma_low")},
       {"sigma_high", "mean + 3σ", false, "mean + 3 deviations", tensor_dataset("sigma_high")},
       {"scale_total", "(max − min)/127", false, "the published scale of the total range",
        tensor_dataset("maximum")},
       {"scale_sigma", "6σ/127", false, "the published scale of mean ± 3 deviations",
        tensor_dataset("deviation")},
       {"published_minimum", "published min"},
       {"published_maximum", "max"},
       {"published_sigma_low", "mean − 3σ"},
       {"published_sigma_high", "mean + 3σ"}});
}

void add_range(std::vector<Cell>& cells, double minimum, double maximum, double sigma_low,
               double sigma_high) {
  for (const double value : {minimum, maximum, sigma_low, sigma_high})
    cells.push_back(Cell::of(value, 4));
}

/// Biases have 32 bits, in units of two scales.
Cell published_scale(const QuantizedTensorRow& row, double low, double high) {
  constexpr double kLargestInteger = 127;
  return row.role == "bias" ? Cell("") : Cell::of((high - low) / kLargestInteger, 6);
}

void ranges_add_row(Table& table, const Run& run, const QuantizedTensorRow& row) {
  std::vector<Cell> cells = {Cell::count(static_cast<double>(row.count))};
  add_range(cells, row.minimum, row.maximum, row.sigma_low, row.sigma_high);
  cells.push_back(published_scale(row, row.minimum, row.maximum));
  cells.push_back(published_scale(row, row.sigma_low, row.sigma_high));
  if (const PublishedRange* of = published_range(run, row))
    add_range(cells, of->minimum, of->maximum, of->sigma_low, of->sigma_high);
  else
    cells.resize(cells.size() + 4, Cell(""));
  add_tensor_row(table, run, row, std::move(cells));
}

std::vector<std::string> ranges_notes(const RunSet& set) {
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

Table make_ranges_table(const RunSet& set, const TableOptions&) {
  Table table{"ranges",
              "Ranges of weights and activations, in the published form",
              ranges_notes(set),
              ranges_columns(),
              {}};
  for (const Run& run : set.quantized)
    for (const char* role : {"weight", "pixels", "activation", "pooled", "bias"})
      for (const QuantizedTensorRow* row : tensors_of(run.reader->quantization(), role))
        ranges_add_row(table, run, *row);
  return table;
}

}  // namespace gradsync::report
