#pragma once

#include <memory>

#include <torch/types.h>

#include "checkpoint/checkpoint_file.h"
#include "int8/float_model.h"
#include "model/network.h"

namespace gradsync::quantize {

/// The trainer's own network with the parameters of a checkpoint, in evaluation mode. Throws Error
/// kBadData if they do not fit.
std::shared_ptr<Network> trained_network(const CheckpointFile& checkpoint,
                                         const std::string& model);

/// The largest difference between the logits of the trainer's network and those of the folded one,
/// over the largest logit. Throws Error kInternal if it is above 1e-3: then the plan is not this
/// network.
double folding_difference(Network& trained, const FloatModel& folded, const torch::Tensor& images);

}  // namespace gradsync::quantize
