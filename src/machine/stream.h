#pragma once

#include <cuda_runtime_api.h>

#include "machine/stream_handle.h"

namespace gradsync {

inline cudaStream_t stream_of(StreamHandle stream) {
  return static_cast<cudaStream_t>(stream);
}

}  // namespace gradsync
