// SPDX-License-Identifier: BSD-3-Clause
#include "base/error.h"
#include "base/memory.h"
#include "machine/device.h"
#include "machine/gpus.h"

#if GRADSYNC_WITH_CUDA
#include <nvtx3/nvToolsExt.h>

#include <atomic>

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>
#endif

namespace gradsync {

#if GRADSYNC_WITH_CUDA

namespace {

cudaStream_t stream_of(StreamHandle stream) {
  return static_cast<cudaStream_t>(stream);
}

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
    throw Error(memory ? ExitCode::kOutOfMemory : ExitCode::kInternal,
                fmt::format("GPU {}: {}: {}", index_, call, cudaGetErrorString(result)),
                memory ? memory_fix() : "CUDA_LAUNCH_BLOCKING=1 shows which call failed");
  }

  int index_;
  nvtxDomainHandle_t ranges_ = nvtxDomainCreateA("gradsync");
  std::atomic<std::int64_t> host_waits_{0};
};

ncclComm_t comm_of(NcclCommunicator communicator) {
  return static_cast<ncclComm_t>(communicator);
}

ncclDataType_t type_of(ValueType type) {
  switch (type) {
    case ValueType::kFloat32:
      return ncclFloat32;
    case ValueType::kBfloat16:
      return ncclBfloat16;
    case ValueType::kFloat16:
      return ncclFloat16;
    case ValueType::kFloat64:
      return ncclFloat64;
    case ValueType::kInt8:
      return ncclInt8;
    case ValueType::kInt32:
      return ncclInt32;
    case ValueType::kByte:
      break;
  }
  return ncclUint8;
}

void check_nccl(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return;
  const std::string text =
      fmt::format("NCCL: {}: {}; {}", call, ncclGetErrorString(result), ncclGetLastError(nullptr));
  if (tells_out_of_memory(text)) throw Error(ExitCode::kOutOfMemory, text, memory_fix());
  throw Error(ExitCode::kEnvironment, text,
              "NCCL_DEBUG=WARN prints details; --transport mpi does not use NCCL");
}

class Nccl : public NcclApi {
 public:
  NcclId make_id() override {
    static_assert(sizeof(ncclUniqueId) == sizeof(NcclId));
    ncclUniqueId id;
    check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    NcclId bytes;
    std::copy(std::begin(id.internal), std::end(id.internal), bytes.begin());
    return bytes;
  }

  NcclCommunicator join(const NcclId& bytes, int rank, int ranks) override {
    ncclUniqueId id;
    std::copy(bytes.begin(), bytes.end(), std::begin(id.internal));
    // Blocking: where calls may return early NCCL starts a thread for each of them.
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    ncclComm_t communicator = nullptr;
    check_nccl(ncclCommInitRankConfig(&communicator, ranks, id, rank, &config),
               "ncclCommInitRankConfig");
    return communicator;
  }

  void leave(NcclCommunicator communicator) override {
    check_nccl(ncclCommDestroy(comm_of(communicator)), "ncclCommDestroy");
  }

  void abort(NcclCommunicator communicator) noexcept override {
    ncclCommAbort(comm_of(communicator));
  }

  std::string lost(NcclCommunicator communicator) override {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_of(communicator), &state);
    if (asked != ncclSuccess) state = asked;
    if (state == ncclSuccess || state == ncclInProgress) return {};
    return fmt::format("NCCL: {}; {}", ncclGetErrorString(state),
                       ncclGetLastError(comm_of(communicator)));
  }

  void all_reduce(void* data, std::size_t count, ValueType type, NcclCommunicator communicator,
                  StreamHandle stream) override {
    check_nccl(ncclAllReduce(data, data, count, type_of(type), ncclSum, comm_of(communicator),
                             stream_of(stream)),
               "ncclAllReduce");
  }

  void reduce(void* data, std::size_t count, ValueType type, int root,
              NcclCommunicator communicator, StreamHandle stream) override {
    check_nccl(ncclReduce(data, data, count, type_of(type), ncclSum, root, comm_of(communicator),
                          stream_of(stream)),
               "ncclReduce");
  }

  void broadcast(void* data, std::size_t bytes, int root, NcclCommunicator communicator,
                 StreamHandle stream) override {
    check_nccl(
        ncclBroadcast(data, data, bytes, ncclUint8, root, comm_of(communicator), stream_of(stream)),
        "ncclBroadcast");
  }

  void all_gather(const void* one, void* all, std::size_t bytes, NcclCommunicator communicator,
                  StreamHandle stream) override {
    check_nccl(ncclAllGather(one, all, bytes, ncclUint8, comm_of(communicator), stream_of(stream)),
               "ncclAllGather");
  }

  void reduce_scatter(const void* all, void* one, std::size_t count, ValueType type,
                      NcclCommunicator communicator, StreamHandle stream) override {
    check_nccl(ncclReduceScatter(all, one, count, type_of(type), ncclSum, comm_of(communicator),
                                 stream_of(stream)),
               "ncclReduceScatter");
  }

  void send(const void* data, std::size_t bytes, int to, NcclCommunicator communicator,
            StreamHandle stream) override {
    check_nccl(ncclSend(data, bytes, ncclUint8, to, comm_of(communicator), stream_of(stream)),
               "ncclSend");
  }

  void receive(void* data, std::size_t bytes, int from, NcclCommunicator communicator,
               StreamHandle stream) override {
    check_nccl(ncclRecv(data, bytes, ncclUint8, from, comm_of(communicator), stream_of(stream)),
               "ncclRecv");
  }

  void begin_group() override { check_nccl(ncclGroupStart(), "ncclGroupStart"); }
  void end_group() override { check_nccl(ncclGroupEnd(), "ncclGroupEnd"); }
};

std::string nccl_version(int code) {
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

std::string cuda_version(int code) {
  return code == 0 ? "none" : fmt::format("{}.{}", code / 1000, code / 10 % 100);
}

/// As nvidia-smi writes it.
std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

/// The number of GPUs; sets `error` where the driver tells none for another reason than that there
/// is no GPU or no driver for this build.
int count_gpus(std::string* error = nullptr) {
  int devices = 0;
  const cudaError_t asked = cudaGetDeviceCount(&devices);
  if (asked == cudaSuccess) return devices;
  if (error && asked != cudaErrorNoDevice && asked != cudaErrorInsufficientDriver)
    *error = fmt::format("{}: {}", static_cast<int>(asked), cudaGetErrorString(asked));
  return 0;
}

}  // namespace

std::unique_ptr<Device> make_cuda_device(int index) {
  return std::make_unique<CudaDevice>(index);
}

std::unique_ptr<NcclApi> make_nccl() {
  return std::make_unique<Nccl>();
}

GpuStack gpu_stack() {
  int nccl = 0, runtime = 0, driver = 0;
  if (ncclGetVersion(&nccl) != ncclSuccess) nccl = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  std::string error;
  const int devices = count_gpus(&error);
  return {nccl_version(NCCL_VERSION_CODE),
          nccl_version(nccl),
          cuda_version(CUDART_VERSION),
          cuda_version(runtime),
          cuda_version(driver),
          devices,
          error};
}

std::vector<GpuDevice> visible_gpus() {
  std::vector<GpuDevice> all;
  for (int device = 0, devices = count_gpus(); device < devices; ++device) {
    cudaDeviceProp properties{};
    // One that does not answer keeps its place: indices are CUDA's.
    if (cudaGetDeviceProperties(&properties, device) == cudaSuccess)
      all.push_back({properties.name, uuid_text(properties.uuid)});
    else
      all.push_back({"a GPU that does not answer", fmt::format("number {}", device)});
  }
  cudaGetLastError();  // of such a one, or the next check of a launch finds it
  return all;
}

#else

std::unique_ptr<Device> make_cuda_device(int) {
  throw Error(ExitCode::kEnvironment, "this build is without CUDA",
              "make status shows what is missing; --device cpu uses no GPU");
}

std::unique_ptr<NcclApi> make_nccl() {
  throw Error(ExitCode::kEnvironment, "this build is without NCCL",
              "make status shows what is missing; --transport mpi does not use NCCL");
}

GpuStack gpu_stack() {
  return {"none", "none", "none", "none", "none", 0};
}

std::vector<GpuDevice> visible_gpus() {
  return {};
}

#endif

}  // namespace gradsync
