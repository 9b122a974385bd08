#include "quantize/summary.h"

#include <ostream>

#include <fmt/format.h>

#include "base/table.h"

namespace gradsync::quantize {

namespace {

Table layer_table(const Quantization& results) {
  Table table{"layers", "Layers", {}, {}, {}};
  table.columns = {
      {"layer", "layer", true},   {"role", "what", true},    {"minimum", "min"},
      {"maximum", "max"},         {"sigma_low", "mean-3sd"}, {"sigma_high", "mean+3sd"},
      {"scale", "largest scale"}, {"sqnr_db", "SQNR dB"},    {"clipped_percent", "clipped %"}};
  for (const QuantizedTensorRow& row : results.tensors)
    table.add({row.layer, row.role, Cell::of(row.minimum, 4), Cell::of(row.maximum, 4),
               Cell::of(row.sigma_low, 4), Cell::of(row.sigma_high, 4),
               Cell::of(row.scale_largest, 6), Cell::of(row.sqnr_db, 1),
               Cell::of(100 * row.clipped, 3)});
  return table;
}

Table step_table(const Quantization& results) {
  Table table{"steps", "Accuracy on the test images", {}, {}, {}};
  table.columns = {{"name", "step or variant", true},
                   {"weights", "weights", true, "", "", 2},
                   {"activations", "activations", true, "", "", 2},
                   {"bias", "bias", true, "", "", 2},
                   {"accuracy", "accuracy %"},
                   {"drop", "drop pp"},
                   {"agreeing", "paths agree"},
                   {"bytes", "bytes", false, "", "", 3}};
  const auto accuracy = [](const QuantizedStepRow& row) {
    return 100.0 * static_cast<double>(row.correct) / static_cast<double>(row.images);
  };
  for (const QuantizedStepRow& row : results.steps)
    table.add(
        {row.name, row.weights, row.activations, row.bias, Cell::of(accuracy(row), 2),
         Cell::of(accuracy(results.steps.front()) - accuracy(row), 2),
         row.agreeing < 0 ? Cell("") : Cell(fmt::format("{} of {}", row.agreeing, row.images)),
         row.model_bytes < 0 ? Cell("") : Cell::count(static_cast<double>(row.model_bytes))});
  table.notes = {fmt::format("n = {} test images; drop against the first row",
                             results.steps.empty() ? 0 : results.steps.front().images)};
  return table;
}

Table speed_table(const Quantization& results) {
  Table table{"speed", "Images per second", {}, {}, {}};
  table.columns = {{"path", "path", true},    {"batch", "batch"}, {"images_per_s", "images/s"},
                   {"ratio", "to best fp32"}, {"low", "low"},     {"high", "high"}};
  for (const QuantizedSpeedRow& row : results.speeds)
    table.add({row.path, Cell::count(static_cast<double>(row.batch)), Cell::count(row.images_per_s),
               Cell::of(row.ratio, 2), Cell::of(row.ratio_low, 2), Cell::of(row.ratio_high, 2)});
  if (!results.speeds.empty())
    table.notes = {
        fmt::format("median of {} rounds, all paths in turn, {} threads; low, high: 95 % "
                    "interval of the ratio",
                    results.speeds.front().rounds, results.speeds.front().threads)};
  return table;
}

}  // namespace

std::string head_text(const Plan& plan, const QuantizeOptions& options,
                      std::int64_t calibration_images, std::int64_t test_images,
                      const DataDigest& data) {
  return fmt::format(
      "{}: weights int{}, {}; activations int{}, {}\n"
      "data: {}, {} training images for calibration, {} test images\n",
      plan.model, options.weights.bits, options.weights.text(), options.activations.bits,
      options.activations.text(), data.name, calibration_images, test_images);
}

std::vector<Table> result_tables(const Quantization& results) {
  std::vector<Table> tables = {layer_table(results), step_table(results)};
  if (!results.speeds.empty()) tables.push_back(speed_table(results));
  return tables;
}

}  // namespace gradsync::quantize
