#pragma once

#include <cstdint>
#include <span>

#include "machine/stream_handle.h"

namespace gradsync {

/// values[i] *= factor. Device memory; see kernels.h on launches.
void launch_scale(float* values, std::int64_t count, float factor, StreamHandle stream);
/// The same on the CPU, in host memory.
void scale_on_host(std::span<float> values, float factor);

}  // namespace gradsync
