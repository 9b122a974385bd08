#pragma once

#include <memory>

#include "comm/session.h"
#include "machine/lane.h"
#include "options/transport_choice.h"
#include "transport/device_transports.h"

namespace gradsync {

/// The transport a run uses, with what it stands on. While it lives, an abort of the session ends
/// what it has under way.
class RankTransport {
 public:
  /// `lane` is null where tensors lie in host memory. All must outlive it. Collective. Where it
  /// cannot be made, the job ends with one message.
  RankTransport(const Session& session, Watchdog& watchdog, const TransportChoice& choice,
                const DeviceChoice& device, DeviceLane* lane);
  ~RankTransport();
  RankTransport(const RankTransport&) = delete;
  RankTransport& operator=(const RankTransport&) = delete;

  Transport& get() { return *transport_; }
  /// What was asked for, with how it came out.
  const TransportChoice& choice() const { return choice_; }

 private:
  void make(Watchdog& watchdog, const DeviceChoice& device, DeviceLane* lane);
  void stand_on_mpi(DeviceLane& lane);

  const Session& session_;
  TransportChoice choice_;
  std::unique_ptr<NcclApi> nccl_;
  std::unique_ptr<MpiTransport> mpi_;
  std::unique_ptr<Transport> on_device_, on_host_;
  Transport* transport_ = nullptr;
};

/// Where the ranks of the session are, by the launcher's nodes. Collective; the same on all ranks.
RankLayout rank_layout(const Session& session);

}  // namespace gradsync
