#pragma once

#include <cstdint>

namespace gradsync {

/// The user namespace of this process if its MPI copies messages between ranks of a host from
/// process to process (machine/single_copy.h); 0 if it does not, or is no Open MPI 4. After
/// MPI_Init.
std::uint64_t cma_namespace();

}  // namespace gradsync
