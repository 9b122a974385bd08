#pragma once

#include <filesystem>

#include "checkpoint/safetensors.h"
#include "quantize/int8_model.h"

namespace gradsync::quantize {

inline constexpr std::string_view kInt8Format = "gradsync-int8/1";

/// Writes a quantized network in safetensors layout (docs/quantization.md describes it): the int8
/// weights as LibTorch lays them out ([out, in, row, column], or [out, in] of a linear layer),
/// scales (float32), zero points (int8), biases (int32). `metadata` is added to what the file says
/// of itself. The name must be free: throws Error kCannotCreate, kInputOutput.
void write_int8_model(const Int8Model& model, TextMap metadata, const std::filesystem::path& file);

}  // namespace gradsync::quantize
