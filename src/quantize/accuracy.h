#pragma once

#include <optional>

#include "quantize/calibration.h"

namespace gradsync::quantize {

/// What a network made of test images.
struct Verdicts {
  std::int64_t images = 0, correct = 0;
  std::int64_t agreeing = 0;  ///< images for which both paths gave the same logits, to the bit
};

/// Of the network in single precision.
Verdicts judge(const StudyRanks& ranks, const FloatModel& model, const ImageRange& images);
/// Of integers kept in floating point, with biases of `float_bias` not rounded.
Verdicts judge_emulated(const StudyRanks& ranks, const Int8Model& model,
                        const FloatModel& float_bias, const ImageRange& images);
/// Of the int8 kernels alone. With `logits`, the largest integer that a logit becomes decides, of
/// equal ones the first.
Verdicts judge_int8(const StudyRanks& ranks, const Int8Model& model, const ImageRange& images,
                    const std::optional<Quantizer>& logits = {});
/// Of the int8 kernels, each image's logits held against those of integers in floating point.
Verdicts judge_both(const StudyRanks& ranks, const Int8Model& model, const ImageRange& images);

}  // namespace gradsync::quantize
