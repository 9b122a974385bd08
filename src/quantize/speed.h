#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "model/network.h"
#include "quantize/int8_model.h"
#include "record/run.h"

namespace gradsync::quantize {

struct SpeedSettings {
  std::int64_t rounds = 15;
  std::int64_t threads = 1;
  std::vector<std::int64_t> batches = {1, 128};
};

/// Images per second of the int8 kernels and of every fp32 path, at each batch, from normalized
/// float images to logits. Fp32 paths: the trainer's network as it is, the folded one, and the
/// folded one as TorchScript, frozen and optimized for inference; each in both memory orders. The
/// paths take turns, so that what else the machine does meets all; the ratio of a row is taken
/// round by round against the fp32 path with the largest median, by `ratio_estimate` of their
/// times.
std::vector<QuantizedSpeedRow> measure_speed(Network& trained, const FloatModel& folded,
                                             const Int8Model& quantized,
                                             const SpeedSettings& settings);

}  // namespace gradsync::quantize
