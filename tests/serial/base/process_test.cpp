// SPDX-License-Identifier: BSD-3-Clause
#include "base/process.h"

#include <sched.h>

#include <csignal>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/error.h"
#include "base/memory.h"
#include "serial/expect_error.h"
#include "serial/test_folder.h"

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

TEST_CASE("a child whose end is not known has not succeeded") {
  const auto before = std::signal(SIGCHLD, SIG_IGN);  // the kernel reaps it
  CHECK_FALSE(capture_process({"true"}).result.succeeded());
  std::signal(SIGCHLD, before);
  CHECK(capture_process({"true"}).result.succeeded());
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
        "you tried to allocate 4611686018427387904 bytes. Error code 12 (Cannot allocate memory)",
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
  set_memory_fix("lower --batch-per-rank");
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
  set_memory_fix("");
}

TEST_CASE("errors: a message is short, and harmless to a terminal") {
  const auto text = [](ExitCode code, const std::string& what) {
    return describe("program", Error(code, what, "rm \x1b[31mx"));
  };
  CHECK(text(ExitCode::kUsage, "a\x1b]0;t\x07") ==
        "program: a\\x1b]0;t\\x07\n  fix: rm \\x1b[31mx");
  const std::string given = "job.cfg:1: " + std::string(3'000'000, 'x') + " is no key";
  const std::string shown = text(ExitCode::kUsage, given);
  CHECK(shown.size() < 600);
  CHECK(shown.starts_with("program: job.cfg:1: xxx"));
  CHECK(shown.find("x is no key\n") != std::string::npos);
  const std::string fix = fmt::format("the keys: {}", std::string(600, 'k'));
  CHECK(contains(describe("program", Error(ExitCode::kUsage, given, fix)), "\n  fix: " + fix));
  // A report of ranks is whole.
  CHECK(text(ExitCode::kHang, std::string(3000, 'x')).size() > 3000);
}

TEST_CASE("errors: a failure of the file system is no defect") {
  try {
    static_cast<void>(std::filesystem::file_size("/nowhere/file"));
  } catch (...) {
    const Error error = current_error();
    CHECK(error.code() == ExitCode::kInputOutput);
    CHECK(std::string(error.what()) == "cannot use '/nowhere/file': No such file or directory");
  }
}

namespace gradsync {
namespace {

constexpr std::int64_t kMiB_bytes = 1 << 20;

/// A control group of cgroup v2, all in MiB.
struct Group {
  std::int64_t most = -1;  ///< -1: "max"
  std::int64_t used = 0, inactive_file = 0, active_file = 0, slab_reclaimable = 0;
};

void state(const FakeRoot& root, const std::string& folder, const Group& group) {
  const std::string place = "sys/fs/cgroup" + folder;
  root.state(place + "/memory.max",
             group.most < 0 ? "max" : std::to_string(group.most * kMiB_bytes));
  root.state(place + "/memory.current", std::to_string(group.used * kMiB_bytes));
  root.state(place + "/memory.stat",
             fmt::format("anon 1\nfile 99999999999\nshmem 99999999\ninactive_file {}\nactive_file "
                         "{}\nslab_reclaimable {}\nslab 99999999999",
                         group.inactive_file * kMiB_bytes, group.active_file * kMiB_bytes,
                         group.slab_reclaimable * kMiB_bytes));
}

std::int64_t left_MiB(const FakeRoot& root) {
  return available_memory_bytes(root.path()).value_or(-kMiB_bytes) / kMiB_bytes;
}

TEST_CASE("memory left: files and slabs that the kernel gives back are not in use") {
  const FakeRoot root;
  CHECK_FALSE(available_memory_bytes(root.path()).has_value());
  root.state("proc/meminfo", "MemTotal:   8388608 kB\nMemAvailable:  4194304 kB");
  CHECK(left_MiB(root) == 4096);
  root.state("proc/self/cgroup", "0::/");
  state(root, "", {1024, 1020, 600, 300, 20});
  CHECK(left_MiB(root) == 1024 - 100);
  state(root, "", {1024, 1020, 0, 0, 0});
  CHECK(left_MiB(root) == 4);
  state(root, "", {1024, 1030, 0, 0, 0});
  CHECK(left_MiB(root) == 0);
  state(root, "", {1024, 100, 600, 0, 0});  // the parts are read a moment later than the sum
  CHECK(left_MiB(root) == 1024);
  state(root, "", {-1, 1020, 0, 0, 0});
  CHECK(left_MiB(root) == 4096);
  state(root, "", {1 << 20, 1020, 0, 0, 0});  // more than the host has
  CHECK(left_MiB(root) == 4096);
}

TEST_CASE("memory left: the limit of a group around ours holds as well") {
  const FakeRoot root;
  root.state("proc/self/cgroup", "0::/slurm/job_7/step_0");
  state(root, "/slurm/job_7/step_0", {-1, 50, 0, 0, 0});
  state(root, "/slurm/job_7", {1000, 990, 890, 0, 0});
  state(root, "/slurm", {4000, 3500, 100, 100, 0});
  state(root, "/other", {10, 10, 0, 0, 0});
  CHECK(left_MiB(root) == 700);
  state(root, "/slurm/job_7", {600, 590, 490, 0, 0});
  CHECK(left_MiB(root) == 500);
  state(root, "/slurm/job_7/step_0", {200, 50, 0, 10, 0});
  CHECK(left_MiB(root) == 160);
}

TEST_CASE("memory left: a container that sees its group at the mount point") {
  const FakeRoot root;
  state(root, "", {512, 500, 400, 0, 0});
  for (const char* path : {"0::/docker/abc", "0::/../../outside", "0::/"}) {
    root.state("proc/self/cgroup", path);
    CHECK_MESSAGE(left_MiB(root) == 412, path);
  }
}

TEST_CASE("memory left: cgroup v1, of which a container may see its own group only") {
  const FakeRoot root;
  const auto limit = [&](const std::string& folder, std::int64_t most, std::int64_t used,
                         std::int64_t inactive, std::int64_t active) {
    const std::string place = "sys/fs/cgroup/memory" + folder;
    root.state(place + "/memory.limit_in_bytes", std::to_string(most));
    root.state(place + "/memory.usage_in_bytes", std::to_string(used * kMiB_bytes));
    root.state(place + "/memory.stat",
               fmt::format("cache 1\ninactive_file 1\nactive_file 1\ntotal_inactive_file {}\n"
                           "total_active_file {}",
                           inactive * kMiB_bytes, active * kMiB_bytes));
  };
  constexpr std::int64_t kNoLimit = 9223372036854771712;
  root.state("proc/meminfo", "MemAvailable:  4194304 kB");
  root.state("proc/self/cgroup", "9:name=systemd:/\n4:memory:/job/task\n1:cpu,cpuacct:/\n0::/");
  limit("/job/task", kNoLimit, 900, 0, 0);
  limit("/job", 1000 * kMiB_bytes, 990, 500, 300);
  limit("", kNoLimit, 3000, 0, 0);
  CHECK(left_MiB(root) == 810);
  limit("/job/task", 300 * kMiB_bytes, 290, 100, 50);
  CHECK(left_MiB(root) == 160);
  root.state("proc/self/cgroup", "4:memory:/docker/abc");
  limit("", 200 * kMiB_bytes, 190, 60, 30);
  CHECK(left_MiB(root) == 100);
}

}  // namespace
}  // namespace gradsync
