// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/numbers.h"
#include "machine/kernels.h"
#include "mpi/ranks.h"
#include "serial/fake_device.h"
#include "transport/rank_transport.h"

namespace gradsync::test {

/// NCCL as it would be if MPI moved the data at once: what is enqueued has its result at once, and
/// takes `call_s` on its stream. Refuses a communicator that is not the one that was joined.
class FakeNccl : public NcclApi {
 public:
  FakeNccl(FakeDevice& device, double call_s) : device_(device), call_s_(call_s) {}

  NcclId make_id() override;
  NcclCommunicator join(const NcclId& id, int rank, int ranks) override;
  void leave(NcclCommunicator) override { ++left; }
  /// As the real one: kernels end, so that what waits for them runs on.
  void abort(NcclCommunicator) noexcept override {
    ++aborted;
    device_.end_streams();
  }
  std::string lost(NcclCommunicator) override { return why_lost; }

  void all_reduce(void* data, std::size_t count, ValueType type, NcclCommunicator communicator,
                  StreamHandle stream) override;
  void reduce(void* data, std::size_t count, ValueType type, int root,
              NcclCommunicator communicator, StreamHandle stream) override;
  void broadcast(void* data, std::size_t bytes, int root, NcclCommunicator communicator,
                 StreamHandle stream) override;
  void all_gather(const void* one, void* all, std::size_t bytes, NcclCommunicator communicator,
                  StreamHandle stream) override;
  void reduce_scatter(const void* all, void* one, std::size_t count, ValueType type,
                      NcclCommunicator communicator, StreamHandle stream) override;
  /// Refused outside a group, where one message would wait for the other.
  void send(const void* data, std::size_t bytes, int to, NcclCommunicator communicator,
            StreamHandle stream) override;
  void receive(void* data, std::size_t bytes, int from, NcclCommunicator communicator,
               StreamHandle stream) override;
  void begin_group() override;
  void end_group() override;

  NcclId joined{};
  int left = 0, aborted = 0, calls = 0;
  int misaligned = 0;  ///< calls on data off 16 bytes
  std::string why_lost;
  double waits_s = 0;  ///< of a call, on top of what it takes: for other ranks
  bool stuck = false;  ///< behind a rank that is gone: from now on no call ends, and nothing moves

 private:
  void move(const Collective& what);
  void enqueue(NcclCommunicator communicator, StreamHandle stream, const void* data,
               std::size_t bytes, FakeDevice::Use use = FakeDevice::Use::kWrite);
  /// Out of place.
  void move_apart(CollectiveKind kind, ValueType type, std::span<const std::byte> send,
                  std::span<std::byte> receive, NcclCommunicator communicator, StreamHandle stream);

  FakeDevice& device_;
  double call_s_;
  MpiTransport mpi_{session().world()};
  std::vector<MPI_Request> requests_;
  bool in_group_ = false;
};

/// The reference implementation of launch_scale.
void scale_on_stand_in(float* values, std::int64_t count, float factor, StreamHandle stream);

inline constexpr double kCall_s = 1e-3;  ///< of DeviceRanks' NCCL

/// What a rank on a device has, with a device that is none.
struct DeviceRanks {
  explicit DeviceRanks(bool nccl, VerifyLevel verify = VerifyLevel::kAll);

  Watchdog& watchdog = session().watchdog();
  FakeDevice device{1e-5};
  EventRing ring{device};
  DeviceLane lane;
  MpiTransport mpi{session().world()};
  FakeNccl api{device, kCall_s};
  std::unique_ptr<Transport> transport;
  Exchange exchange;
  int rank = session().rank(), size = session().size();
  /// What a collective takes: of one rank NCCL enqueues none.
  double call_s = size > 1 ? kCall_s : 0;
};

}  // namespace gradsync::test
