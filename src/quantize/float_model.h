// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <vector>

#include "checkpoint/checkpoint_file.h"
#include "quantize/plan.h"

namespace gradsync::quantize {

/// The parameters of one node in single precision, its batch norm folded in.
struct FloatLayer {
  std::vector<float> weights;  ///< [output channel][row][column][input channel]
  std::vector<float> bias;     ///< [output channel]; empty where there is none
};

/// A trained network as it is quantized: one layer a node, empty for pools.
struct FloatModel {
  Plan plan;
  std::vector<FloatLayer> layers;
};

/// Batch norm in evaluation is y = weight·(x − mean)/√(variance + ε) + bias, so it goes into the
/// convolution before it: w' = w·g, b' = (b − mean)·g + bias with g = weight/√(variance + ε),
/// computed in double precision.
struct BatchNormValues {
  std::vector<float> weight, bias, mean, variance;
  double epsilon = 1e-5;
};
void fold(FloatLayer& layer, const BatchNormValues& norm);

/// The bytes of a tensor of the network that was evaluated: rank 0's, or float32 parameters' mean
/// over the ranks for a mode whose ranks step apart and average now and then (local-sgd). Throws
/// Error kBadData where a rank's has another length, or the file states a number of ranks that
/// cannot be.
std::vector<std::byte> trained_bytes(const CheckpointFile& checkpoint, const TensorPlace& tensor);

/// The network of a trainer's checkpoint (trained_bytes). Throws Error kBadData, naming the file
/// and the tensor, if the checkpoint is of another network than `plan`, or holds a number that is
/// not finite.
FloatModel read_float_model(const CheckpointFile& checkpoint, Plan plan);

/// The network that a checkpoint says it is of. Throws Error kBadData if it does not say.
std::string model_of(const CheckpointFile& checkpoint);

/// Bytes of all parameters and batch norm statistics in single precision, as trained.
std::int64_t float_bytes(const CheckpointFile& checkpoint);

/// A file itself, or the newest checkpoint of the folder that `path` is. Throws Error kNoInput.
std::filesystem::path checkpoint_at(const std::filesystem::path& path);

}  // namespace gradsync::quantize
