#include <fmt/format.h>

#include "analysis/metrics/quantized_figures.h"
#include "analysis/tables/tables.h"

namespace gradsync {

namespace {

std::vector<Column> columns() {
  const std::string tensor = "/quantize/tensor/";
  return {{"model", "model", true},
          {"layer", "layer", true},
          {"role", "what", true},
          {"count", "n", false, "numbers", tensor + "count"},
          {"minimum", "min", false, "smallest", tensor + "minimum"},
          {"maximum", "max", false, "largest", tensor + "maximum"},
          {"sigma_low", "mean − 3σ", false, "mean − 3 deviations", tensor + "sigma_low"},
          {"sigma_high", "mean + 3σ", false, "mean + 3 deviations", tensor + "sigma_high"},
          {"published_minimum", "published min"},
          {"published_maximum", "max"},
          {"published_sigma_low", "mean − 3σ"},
          {"published_sigma_high", "mean + 3σ"},
          {"run", "run", true}};
}

Cell four_digits(double value) {
  return Cell::of(value, 4);
}

void add_row(Table& table, const Run& run, const QuantizedTensorRow& row) {
  std::vector<Cell> cells = {run.model,
                             row.layer,
                             row.role,
                             Cell::count(static_cast<double>(row.count)),
                             four_digits(row.minimum),
                             four_digits(row.maximum),
                             four_digits(row.sigma_low),
                             four_digits(row.sigma_high)};
  if (const PublishedRange* published = published_range(run, row))
    for (const double value :
         {published->minimum, published->maximum, published->sigma_low, published->sigma_high})
      cells.push_back(four_digits(value));
  else
    cells.resize(cells.size() + 4, Cell(""));
  cells.emplace_back(run.name);
  table.add(std::move(cells), run.path.string());
}

std::vector<std::string> notes(const RunSet& set) {
  std::vector<std::string> all = {
      "mean ± 3σ is not clipped to the total range, as published; activations are what a layer "
      "gives after its ReLU, before pooling",
      "pixels: the calibration images as 2·pixel/255 − 1, the published study's input; input: as "
      "this network takes them, (pixel/255 − mean)/deviation per channel",
      "the published network was another training: ranges of its layers show the order of "
      "magnitude "
      "only, those of its input are the data set's"};
  for (const Run& run : set.quantized)
    all.push_back(fmt::format("{}: {} training images for calibration", run.name,
                              run.reader->option("calibration-images")));
  return all;
}

}  // namespace

Table make_ranges_table(const RunSet& set, const TableOptions&) {
  Table table{"ranges",
              "Ranges of weights and activations, in the published form",
              notes(set),
              columns(),
              {}};
  for (const Run& run : set.quantized)
    for (const char* role : {"weight", "pixels", "activation", "bias"})
      for (const QuantizedTensorRow* row : tensors_of(run.reader->quantization(), role))
        add_row(table, run, *row);
  return table;
}

}  // namespace gradsync
