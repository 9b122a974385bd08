#pragma once

#include <array>
#include <string>
#include <vector>

#include "quantize/distribution.h"
#include "quantize/int8_model.h"
#include "record/run.h"

/// What the run file says of the tensors of a network.
namespace gradsync::quantize {

/// How often each integer −128 … 127 stands.
using IntegerCounts = std::array<std::int64_t, kHistogramLevels>;

/// A tensor before it is quantized.
QuantizedTensorRow tensor_row(const std::string& layer, const std::string& role,
                              const Distribution& values);

/// Weights of each node that has some, with what they became; then its bias, where it has one.
std::vector<QuantizedTensorRow> parameter_rows(const FloatModel& model, const Int8Model& quantized);

/// What an activation of a layer became: `clipped` is the part of the calibration's numbers outside
/// the range, `sqnr_db` compares integers with real numbers.
QuantizedTensorRow activation_row(const std::string& layer, const Distribution& values,
                                  const Quantizer& by, double sqnr_db, const IntegerCounts& counts);

}  // namespace gradsync::quantize
