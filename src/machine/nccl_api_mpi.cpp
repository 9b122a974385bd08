#include "base/error.h"
#include "base/memory.h"
#include "machine/nccl_api.h"

#if GRADSYNC_WITH_CUDA
#include <fmt/format.h>
#include <nccl.h>

#include "machine/stream.h"
#endif

namespace gradsync {

#if GRADSYNC_WITH_CUDA

namespace {

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

void check(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return;
  const std::string text =
      fmt::format("NCCL: {}: {}; {}", call, ncclGetErrorString(result), ncclGetLastError(nullptr));
  if (tells_out_of_memory(text))
    throw Error(ExitCode::kOutOfMemory, text, "lower --batch-per-rank");
  throw Error(ExitCode::kEnvironment, text,
              "NCCL_DEBUG=WARN prints details; --transport mpi does not use NCCL");
}

class Nccl : public NcclApi {
 public:
  NcclId make_id() override {
    static_assert(sizeof(ncclUniqueId) == sizeof(NcclId));
    ncclUniqueId id;
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
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
    check(ncclCommInitRankConfig(&communicator, ranks, id, rank, &config),
          "ncclCommInitRankConfig");
    return communicator;
  }

  void leave(NcclCommunicator communicator) override {
    check(ncclCommDestroy(comm_of(communicator)), "ncclCommDestroy");
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

  void all_reduce(void* data, std::size_t count, ValueType type, bool mean,
                  NcclCommunicator communicator, StreamHandle stream) override {
    check(ncclAllReduce(data, data, count, type_of(type), mean ? ncclAvg : ncclSum,
                        comm_of(communicator), stream_of(stream)),
          "ncclAllReduce");
  }

  void reduce(void* data, std::size_t count, ValueType type, int root,
              NcclCommunicator communicator, StreamHandle stream) override {
    check(ncclReduce(data, data, count, type_of(type), ncclSum, root, comm_of(communicator),
                     stream_of(stream)),
          "ncclReduce");
  }

  void broadcast(void* data, std::size_t bytes, int root, NcclCommunicator communicator,
                 StreamHandle stream) override {
    check(
        ncclBroadcast(data, data, bytes, ncclUint8, root, comm_of(communicator), stream_of(stream)),
        "ncclBroadcast");
  }

  void all_gather(const void* one, void* all, std::size_t bytes, NcclCommunicator communicator,
                  StreamHandle stream) override {
    check(ncclAllGather(one, all, bytes, ncclUint8, comm_of(communicator), stream_of(stream)),
          "ncclAllGather");
  }

  void reduce_scatter(const void* all, void* one, std::size_t count, ValueType type,
                      NcclCommunicator communicator, StreamHandle stream) override {
    check(ncclReduceScatter(all, one, count, type_of(type), ncclSum, comm_of(communicator),
                            stream_of(stream)),
          "ncclReduceScatter");
  }

  void send(const void* data, std::size_t bytes, int to, NcclCommunicator communicator,
            StreamHandle stream) override {
    check(ncclSend(data, bytes, ncclUint8, to, comm_of(communicator), stream_of(stream)),
          "ncclSend");
  }

  void receive(void* data, std::size_t bytes, int from, NcclCommunicator communicator,
               StreamHandle stream) override {
    check(ncclRecv(data, bytes, ncclUint8, from, comm_of(communicator), stream_of(stream)),
          "ncclRecv");
  }

  void begin_group() override { check(ncclGroupStart(), "ncclGroupStart"); }
  void end_group() override { check(ncclGroupEnd(), "ncclGroupEnd"); }
};

}  // namespace

std::unique_ptr<NcclApi> make_nccl() {
  return std::make_unique<Nccl>();
}

#else

std::unique_ptr<NcclApi> make_nccl() {
  throw Error(ExitCode::kEnvironment, "this build is without NCCL",
              "make status shows what is missing; --transport mpi does not use NCCL");
}

#endif

}  // namespace gradsync
