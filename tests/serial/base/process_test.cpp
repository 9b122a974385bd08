#include "base/process.h"

#include <sched.h>

#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/stop_signals.h"

using namespace gradsync;

TEST_CASE("signals that several threads handle at the same time are all counted") {
  constexpr int kThreads = 4, kEach = 20'000;
  const StopSignals signals({SIGUSR1, SIGTERM});
  CHECK(signals.count() == 0);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([i] {
      // `raise` returns when this thread has handled it.
      for (int n = 0; n < kEach; ++n)
        raise(i % 2 == 0 ? SIGUSR1 : SIGTERM);
    });
  for (std::thread& thread : threads)
    thread.join();
  CHECK(signals.count() == kThreads * kEach);
  CHECK((signals.received() == SIGUSR1 || signals.received() == SIGTERM));
}

namespace {

int policy() {
  return sched_getscheduler(0);
}

void set_policy(int policy) {
  const sched_param no_priority{};
  REQUIRE(sched_setscheduler(0, policy, &no_priority) == 0);
}

}  // namespace

// In threads of their own: SCHED_IDLE is not always left again without privileges.

TEST_CASE("SCHED_BATCH scope: this thread and those it starts, until its end") {
  if (policy() != SCHED_OTHER) {
    MESSAGE("SKIP: the tests were started with another scheduling policy");
    return;
  }
  int before = -1, within = -1, started = -1, after = -1;
  std::thread([&] {
    before = policy();
    {
      const SchedBatchScope polite;
      within = policy();
      std::thread([&] { started = policy(); }).join();
    }
    after = policy();
  }).join();
  CHECK(before == SCHED_OTHER);
  CHECK(within == SCHED_BATCH);
  CHECK(started == SCHED_BATCH);
  CHECK(after == SCHED_OTHER);
}

TEST_CASE("SCHED_BATCH scope: a policy that was chosen before stays") {
  int within = -1, after = -1;
  std::thread([&] {
    set_policy(SCHED_IDLE);
    {
      const SchedBatchScope polite;
      within = policy();
    }
    after = policy();
  }).join();
  CHECK(within == SCHED_IDLE);
  CHECK(after == SCHED_IDLE);
}

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

TEST_CASE("errors: cuDNN finds no algorithm because of memory only where the device's is full") {
  struct Asked {
    explicit Asked(bool (*nearly_full)()) { ask_device_memory(nearly_full); }
    ~Asked() { ask_device_memory(nullptr); }
    Asked(const Asked&) = delete;
    Asked& operator=(const Asked&) = delete;
  };
  for (const char* how : {"FIND", "GET"}) {
    const std::string words =
        std::string(how) + " was unable to find an engine to execute this computation";
    CHECK_FALSE(tells_out_of_memory(words));
    {
      const Asked full([] { return true; });
      CHECK(code_of(words.c_str()) == ExitCode::kOutOfMemory);
      CHECK_FALSE(tells_out_of_memory("CUDA error: misaligned address"));
    }
    const Asked free([] { return false; });
    CHECK(code_of(words.c_str()) == ExitCode::kInternal);
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
