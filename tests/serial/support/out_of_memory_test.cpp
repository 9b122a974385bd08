#include "support/out_of_memory.h"

#include <new>
#include <stdexcept>
#include <string>

#include <doctest/doctest.h>

#include "support/error.h"

using namespace gradsync;

namespace {

/// The code that a program ends with when a library throws an error of these words.
ExitCode code_of(const std::string& words) {
  try {
    throw std::runtime_error(words);
  } catch (...) {
    return current_error().code();
  }
}

}  // namespace

TEST_CASE("errors: out of memory is recognized by the words of each library") {
  for (const char* words :
       {// LibTorch's allocators
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.81 GiB",
        "[enforce fail at alloc_cpu.cpp:125] err == 0. DefaultCPUAllocator: can't allocate memory: "
        "you "
        "tried to allocate 4611686018427387904 bytes. Error code 12 (Cannot allocate memory)",
        "DefaultCPUAllocator: not enough memory: you tried to allocate 1073741824 bytes.",
        // CUDA, as text, as name, and of the driver
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
        "cudaErrorMemoryAllocation", "CUDA driver error: CUDA_ERROR_OUT_OF_MEMORY",
        "GPU 3: cudaMalloc: out of memory",
        // the libraries on it
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        // NCCL, as it and as LibTorch says it
        "NCCL: ncclAllReduce: unhandled cuda error (run with NCCL_DEBUG=INFO for details); Cuda "
        "failure 2 'out of memory'",
        "NCCL error in: ProcessGroupNCCL.cpp:94, unhandled cuda error\nLast error:\nFailed to CUDA "
        "malloc 4194304 bytes",
        // the system and MPI
        "mmap: Cannot allocate memory", "MPI_ERR_NO_MEM: out of memory"}) {
    CAPTURE(words);
    CHECK(tells_out_of_memory(words));
    CHECK(code_of(words) == ExitCode::kOutOfMemory);
  }
}

TEST_CASE("errors: other faults of a GPU are not taken for memory that ran out") {
  for (const char* words :
       {"CUDA error: an illegal memory access was encountered", "cudaErrorIllegalAddress",
        "CUDA error: misaligned address", "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        "NCCL: ncclAllReduce: remote process exited or there was a network error",
        "CUDA error: misaligned address\nException raised from raise at /src/out_of_memory.cpp:7",
        ""}) {
    CAPTURE(words);
    CHECK_FALSE(tells_out_of_memory(words));
    CHECK(code_of(words) == ExitCode::kInternal);
  }
}

TEST_CASE("errors: a library's out of memory keeps its words, and names the remedy") {
  try {
    throw std::runtime_error("CUDA out of memory. Tried to allocate 2.00 GiB");
  } catch (...) {
    const Error error = current_error();
    CHECK(std::string(error.what()).find("Tried to allocate 2.00 GiB") != std::string::npos);
    CHECK(error.fix() == "lower --batch-per-rank");
  }
  try {
    throw std::bad_alloc();
  } catch (...) {
    CHECK(current_error().code() == ExitCode::kOutOfMemory);
  }
}
