#include "base/error.h"
#include "machine/cuda_device.h"

#if GRADSYNC_WITH_CUDA
#include <nvtx3/nvToolsExt.h>

#include <atomic>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "machine/stream.h"
#endif

namespace gradsync {

#if GRADSYNC_WITH_CUDA

namespace {

cudaEvent_t event_of(EventHandle event) {
  return static_cast<cudaEvent_t>(event);
}

class CudaDevice : public Device {
 public:
  explicit CudaDevice(int index) : index_(index) {
    const cudaError_t result = cudaSetDevice(index);
    if (result != cudaSuccess)
      throw Error(ExitCode::kEnvironment,
                  fmt::format("GPU {} cannot be used: {}", index, cudaGetErrorString(result)),
                  "nvidia-smi shows its processes and its state; --device cpu uses no GPU");
  }

  void use_in_this_thread() override { check(cudaSetDevice(index_), "cudaSetDevice"); }

  StreamHandle make_stream() override {
    use_in_this_thread();
    int least = 0, greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    cudaStream_t stream = nullptr;
    // Ahead of compute: what waits to be exchanged holds up every rank.
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest),
          "cudaStreamCreateWithPriority");
    return stream;
  }

  void free_stream(StreamHandle stream) override { cudaStreamDestroy(stream_of(stream)); }

  EventHandle make_event() override {
    use_in_this_thread();
    cudaEvent_t event = nullptr;
    // The default flag is the one that carries time.
    check(cudaEventCreateWithFlags(&event, cudaEventDefault), "cudaEventCreateWithFlags");
    return event;
  }

  void free_event(EventHandle event) override { cudaEventDestroy(event_of(event)); }

  void record(EventHandle event, StreamHandle stream) override {
    check(cudaEventRecord(event_of(event), stream_of(stream)), "cudaEventRecord");
  }

  void wait(StreamHandle stream, EventHandle event) override {
    check(cudaStreamWaitEvent(stream_of(stream), event_of(event), 0), "cudaStreamWaitEvent");
  }

  bool happened(EventHandle event) override {
    const cudaError_t result = cudaEventQuery(event_of(event));
    if (result == cudaErrorNotReady) {
      cudaGetLastError();  // or the next check elsewhere finds it
      return false;
    }
    check(result, "cudaEventQuery");
    return true;
  }

  double elapsed_s(EventHandle from, EventHandle to) override {
    float elapsed_ms = 0;
    check(cudaEventElapsedTime(&elapsed_ms, event_of(from), event_of(to)), "cudaEventElapsedTime");
    return 1e-3 * static_cast<double>(elapsed_ms);
  }

  // Without a profiler NVTX does nothing: each call is a look at a pointer that is null.
  void begin_range(std::string_view name, std::int64_t value) override {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    attributes.payload.llValue = value;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = name.data();
    nvtxDomainRangePushEx(ranges_, &attributes);
  }

  void end_range() override { nvtxDomainRangePop(ranges_); }

  void copy(void* to, const void* from, std::size_t bytes, StreamHandle stream) override {
    use_in_this_thread();
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream)),
          "cudaMemcpyAsync");
  }

  void* make_memory(std::size_t bytes) override {
    use_in_this_thread();
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), "cudaMalloc");
    return memory;
  }

  void free_memory(void* memory) override { cudaFree(memory); }

  void* make_pinned(std::size_t bytes) override {
    use_in_this_thread();
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "cudaHostAlloc");
    return memory;
  }

  void free_pinned(void* memory) override { cudaFreeHost(memory); }

  void wait_for(EventHandle event) override {
    ++host_waits_;
    check(cudaEventSynchronize(event_of(event)), "cudaEventSynchronize");
  }

  std::int64_t host_waits() const override { return host_waits_; }

 private:
  void check(cudaError_t result, const char* call) const {
    if (result == cudaSuccess) return;
    const bool memory = result == cudaErrorMemoryAllocation;
    throw Error(
        memory ? ExitCode::kOutOfMemory : ExitCode::kInternal,
        fmt::format("GPU {}: {}: {}", index_, call, cudaGetErrorString(result)),
        memory ? "lower --batch-per-rank" : "CUDA_LAUNCH_BLOCKING=1 shows which call failed");
  }

  int index_;
  nvtxDomainHandle_t ranges_ = nvtxDomainCreateA("gradsync");
  std::atomic<std::int64_t> host_waits_{0};
};

}  // namespace

std::unique_ptr<Device> make_cuda_device(int index) {
  return std::make_unique<CudaDevice>(index);
}

#else

std::unique_ptr<Device> make_cuda_device(int) {
  throw Error(ExitCode::kEnvironment, "this build is without CUDA",
              "make status shows what is missing; --device cpu uses no GPU");
}

#endif

}  // namespace gradsync
