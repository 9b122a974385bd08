// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint_file.h"
#include "quantize/float_model.h"
#include "quantize/scale.h"

namespace gradsync::quantize {

/// One node in integers. With q the integers of its input, zi their zero point, and w, zw those of
/// the weights, its accumulators are a = Σ (w − zw)(q − zi) + bias, in units of input scale ×
/// weight scale. With m the multiplier of the channel and zo the zero point of its output, the
/// output is rint(clamp(float(a) · m + s, low − zo, high − zo)) + zo in single precision without
/// fused operations; s is what a shortcut adds, in units of the output's scale, and rint rounds
/// halves to even. Of the last node, a · m is the logit.
struct Int8Layer {
  QuantizedWeights weights;        ///< as FloatLayer's; empty for pools
  std::vector<std::int32_t> bias;  ///< one an output channel; empty where there is none
  std::vector<float> multipliers;  ///< one an output channel; of a mean, one: scale ratio / pixels
  float added_multiplier = 0;      ///< takes the added value's integers to units of the output
  Quantizer output;                ///< of the value it gives
};

/// A network in integers.
struct Int8Model {
  Plan plan;
  Quantizer input;
  std::vector<Int8Layer> layers;

  const Quantizer& of_value(std::size_t value) const {
    return value == 0 ? input : layers[value - 1].output;
  }
};

/// How the values of a plan are quantized: value 0 the image, value i + 1 what node i gives.
/// Entries of maxima and of the last node are not read.
using ValueQuantizers = std::vector<Quantizer>;

/// Throws Error kBadData, naming the node, if its weights cannot be quantized or a bias does not
/// fit 2^30 units.
Int8Model quantize_model(const FloatModel& model, const WeightScheme& scheme,
                         const ValueQuantizers& values);

/// Bytes of the tensors that `write_int8_model` writes.
std::int64_t int8_bytes(const Int8Model& model);

inline constexpr std::string_view kInt8Format = "gradsync-int8/1";

/// Writes a quantized network in safetensors layout (docs/quantization.md describes it): the int8
/// weights as LibTorch lays them out ([out, in, row, column], or [out, in] of a linear layer),
/// scales (float32), zero points (int8), biases (int32). `metadata` is added to what the file says
/// of itself. The name must be free: throws Error kCannotCreate, kInputOutput.
void write_int8_model(const Int8Model& model, TextMap metadata, const std::filesystem::path& file);

}  // namespace gradsync::quantize
