#pragma once

#include "record/hdf5_input.h"
#include "record/hdf5_output.h"
#include "record/quantization.h"

/// The groups quantize/tensor, quantize/step and quantize/speed of a run file, which only runs of
/// gradsync-quantize have.
namespace gradsync {

/// Nothing is written for an empty one.
void write_quantization(Hdf5Output& file, const Quantization& quantization);

/// Empty where the file has none. Throws Error kBadData.
Quantization read_quantization(const Hdf5Input& file);

}  // namespace gradsync
