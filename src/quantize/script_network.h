#pragma once

#include <torch/script.h>

#include "int8/float_model.h"

namespace gradsync::quantize {

/// The folded network as TorchScript, frozen and optimized for inference: the fastest form in which
/// LibTorch alone runs it. Takes and gives what FloatNetwork does.
torch::jit::Module script_network(const FloatModel& model);

}  // namespace gradsync::quantize
