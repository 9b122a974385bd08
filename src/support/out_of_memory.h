#pragma once

#include <string_view>

namespace gradsync {

/// Whether an error's text says that memory ran out, of the host or of a GPU, in the words of
/// LibTorch's allocators, CUDA, its driver, cuBLAS, cuDNN, NCCL or MPI. Most of them throw an error
/// of one class for all that can go wrong, so their words are all there is to go by.
bool tells_out_of_memory(std::string_view text);

}  // namespace gradsync
