#pragma once

#include <string>
#include <vector>

#include "kernels/bad_address.h"
#include "kernels/kernels.h"
#include "mpi/ranks.h"
#include "serial/fake_device.h"
#include "transport/nccl_transport.h"
#include "transport/staged_transport.h"

namespace gradsync::test {

/// NCCL as it would be if MPI moved the data at once: what is enqueued has its result at once, and
/// takes `call_s` on its stream.
class FakeNccl : public NcclApi {
 public:
  FakeNccl(FakeDevice& device, double call_s) : device_(device), call_s_(call_s) {}

  NcclId make_id() override;
  NcclCommunicator join(const NcclId& id, int rank, int ranks) override;
  void leave(NcclCommunicator) override { ++left; }
  void abort(NcclCommunicator) noexcept override { ++aborted; }
  std::string lost(NcclCommunicator) override { return why_lost; }

  void all_reduce(void* data, std::size_t count, ValueType type, bool mean, NcclCommunicator,
                  StreamHandle stream) override;
  void reduce(float* data, std::size_t count, int root, NcclCommunicator,
              StreamHandle stream) override;
  void broadcast(void* data, std::size_t bytes, int root, NcclCommunicator,
                 StreamHandle stream) override;
  /// Refused outside a group, where one message would wait for the other.
  void send(const float* data, std::size_t count, int to, NcclCommunicator,
            StreamHandle stream) override;
  void receive(float* data, std::size_t count, int from, NcclCommunicator,
               StreamHandle stream) override;
  void begin_group() override;
  void end_group() override;

  NcclId joined{};
  int left = 0, aborted = 0;
  std::string why_lost;

 private:
  void take_time(StreamHandle stream) { device_.work(stream, call_s_); }

  FakeDevice& device_;
  double call_s_;
  MpiTransport mpi_{session().world()};
  std::vector<MPI_Request> requests_;
  bool in_group_ = false;
};

/// What a rank on a device has, with a device that is none.
struct DeviceRanks {
  explicit DeviceRanks(bool nccl, VerifyLevel verify = VerifyLevel::kAll);

  Watchdog& watchdog = session().watchdog();
  FakeDevice device{1e-5};
  EventRing ring{device};
  DeviceLane lane;
  MpiTransport mpi{session().world()};
  FakeNccl api{device, 1e-3};
  std::unique_ptr<Transport> transport;
  Exchange exchange;
  int rank = session().rank(), size = session().size();
};

}  // namespace gradsync::test
