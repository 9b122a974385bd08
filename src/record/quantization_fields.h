#pragma once

#include "record/quantization.h"

/// The fields of the rows of a Quantization, once for journal and HDF5: `visit(name, value, units,
/// long name)` for each.
namespace gradsync {

template <typename Visit>
void visit_fields(QuantizedTensorRow& row, Visit& visit) {
  visit("layer", row.layer, "1", "layer, or input for the images");
  visit("role", row.role, "1",
        "weight, bias, activation (what the layer gives), or pixels as 2*pixel/255 - 1");
  visit("count", row.count, "1", "numbers in it");
  visit("minimum", row.minimum, "1", "smallest number");
  visit("maximum", row.maximum, "1", "largest number");
  visit("mean", row.mean, "1", "mean");
  visit("deviation", row.deviation, "1", "standard deviation");
  visit("sigma_low", row.sigma_low, "1", "mean - 3 deviations");
  visit("sigma_high", row.sigma_high, "1", "mean + 3 deviations");
  visit("scales", row.scales, "1", "scales: 1, or one an output channel");
  visit("scale_least", row.scale_least, "1", "smallest scale");
  visit("scale_largest", row.scale_largest, "1", "largest scale");
  visit("zero_point", row.zero_point, "1", "integer that stands for 0");
  visit("sqnr", row.sqnr_db, "dB", "signal to quantisation noise");
  visit("largest_error", row.largest_error, "1", "largest error of a number");
  visit("clipped", row.clipped, "1", "part of the numbers beyond the clamped range");
  visit("histogram", row.histogram, "1", "numbers in 60 bins from the smallest to the largest");
  visit("integers", row.integers, "1", "how often each of the integers -128 to 127 stands");
}

template <typename Visit>
void visit_fields(QuantizedStepRow& row, Visit& visit) {
  visit("kind", row.kind, "1", "step or ablation");
  visit("name", row.name, "1", "what is quantised");
  visit("weights", row.weights, "1", "how weights are quantised");
  visit("activations", row.activations, "1", "how activations are quantised");
  visit("bias", row.bias, "1", "how biases are quantised");
  visit("images", row.images, "1", "test images");
  visit("correct", row.correct, "1", "test images that were classified right");
  visit("agreeing", row.agreeing, "1", "test images whose logits are those of the other path");
  visit("model_bytes", row.model_bytes, "B", "bytes of the parameters");
}

template <typename Visit>
void visit_fields(QuantizedSpeedRow& row, Visit& visit) {
  visit("path", row.path, "1", "what computes");
  visit("batch", row.batch, "1", "images at once");
  visit("threads", row.threads, "1", "threads");
  visit("rounds", row.rounds, "1", "rounds, all paths in turn in each");
  visit("images_per_second", row.images_per_s, "1/s", "median over the rounds");
  visit("ratio", row.ratio, "1", "to the best fp32 path, median over the rounds");
  visit("ratio_low", row.ratio_low, "1", "lower end of its 95 % interval");
  visit("ratio_high", row.ratio_high, "1", "upper end of its 95 % interval");
}

}  // namespace gradsync
