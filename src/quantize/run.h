#pragma once

#include <string>

#include "comm/session.h"
#include "int8/options.h"
#include "support/program_output.h"

namespace gradsync::quantize {

/// Passes over the images may take long, so ranks wait for each other by what they took themselves.
WatchLimits watch_limits();

/// Quantizes a network step by step on all ranks: weights, calibration, activations, biases,
/// accuracy after each, variants, speed; prints tables, writes the run file and the quantized
/// network. Nothing is written before all is computed. Errors end the job through
/// Session::abort.
int run_quantization(const Session& session, const QuantizeOptions& options,
                     const OptionValues& values, const std::string& command_line,
                     ProgramOutput& output);

}  // namespace gradsync::quantize
