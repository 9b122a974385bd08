#pragma once

namespace gradsync {

/// A CUDA stream (cudaStream_t) for files that include no header of CUDA.
using StreamHandle = void*;

}  // namespace gradsync
