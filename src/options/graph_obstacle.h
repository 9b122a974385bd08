#pragma once

#include <string>

#include "options/options.h"

namespace gradsync {

/// Which option keeps the step from being captured as a CUDA graph, and why; empty if none does.
/// `options` are settled: device, transport and feed are what the run uses.
std::string graph_obstacle(const TrainOptions& options);

}  // namespace gradsync
