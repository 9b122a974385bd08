#pragma once

#include <string>
#include <vector>

#include "options/networks.h"
#include "record/run.h"

namespace gradsync {

/// The floating-point operations of each layer for one sample: of every convolution and matrix
/// product that LibTorch runs in a forward and a backward pass of a new network on the CPU, two for
/// a multiplication and its addition, as torch.utils.flop_counter counts them. Layers without any
/// (batch norm) have NaN. In the order of the network's parameters; parameters of one name but for
/// its last part are one layer. The gradient of a grouped convolution's weight counts what is
/// computed; torch.utils.flop_counter counts it as often as there are groups. `batch`: see
/// trial_samples. Seeds LibTorch's generator, as make_network does.
std::vector<LayerRow> layer_flop(const std::string& model, const NetworkInput& input,
                                 std::int64_t batch);

}  // namespace gradsync
