// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "machine/host.h"
#include "machine/kernels.h"
#include "transport/interfaces.h"
#include "transport/rank_transport.h"

namespace gradsync {

namespace {

/// NCCL refuses two ranks of one host on one GPU, and distinguishes hosts by this name. Sockets
/// over the loopback are what is left between such ranks: right, and slow. What is set already
/// stays.
void let_ranks_share_a_gpu(const Session& session) {
  const auto set = [](const char* name, const std::string& value) {
    setenv(name, value.c_str(), /*overwrite=*/0);
  };
  set("NCCL_HOSTID", "gradsync-rank-" + std::to_string(session.rank()));
  if (session.local_size() == session.size()) set("NCCL_SOCKET_IFNAME", "lo");
  set("NCCL_IB_DISABLE", "1");
  set("NCCL_NVLS_ENABLE", "0");
  set("NCCL_MAX_CTAS", "2");
}

/// A ring of the ranks of `comm`, none where that is MPI_COMM_NULL. All ranks of the session call
/// it, and end together when one cannot join its ring.
std::unique_ptr<Transport> join_ring(const Session& session, MPI_Comm comm) {
  std::unique_ptr<Transport> ring;
  session.together([&] {
    if (comm != MPI_COMM_NULL) ring = std::make_unique<RingTransport>(session, comm);
  });
  return ring;
}

std::unique_ptr<Transport> make_host_transport(const Session& session, const std::string& name) {
  if (name == "shm") return std::make_unique<ShmTransport>(session.node());
  if (name == "tcp-ring") return join_ring(session, session.world());
  const bool by_mpi = rank_layout(session).prefers_mpi();
  const auto lane = [&](MPI_Comm comm) -> std::unique_ptr<Transport> {
    if (!by_mpi) return join_ring(session, comm);
    return comm == MPI_COMM_NULL ? nullptr : std::make_unique<MpiTransport>(comm);
  };
  return std::make_unique<TwoLevelTransport>(session.world(), session.node(), lane);
}

}  // namespace

// Whatever one rank throws ends the job here: unwinding would come to ends that are collective, and
// the other ranks wait in this constructor.
RankTransport::RankTransport(const Session& session, Watchdog& watchdog,
                             const TransportChoice& choice, const DeviceChoice& device,
                             DeviceLane* lane)
    : session_(session), choice_(choice) {
  const WatchdogTimeoutExtension sets_up(watchdog, WatchedPhase::kTransport);
  const CollectiveScope watched(watchdog, CollectiveKind::kBarrier);
  try {
    make(watchdog, device, lane);
  } catch (...) {
    session_.abort(current_error());
  }
  if (transport_->enqueues()) session_.before_abort([this] { transport_->abandon(); });
}

void RankTransport::make(Watchdog& watchdog, const DeviceChoice& device, DeviceLane* lane) {
  if (choice_.name == "nccl") {
    if (device.shared) let_ranks_share_a_gpu(session_);
    session_.together([&] { nccl_ = make_nccl(); });
    on_device_ = std::make_unique<NcclTransport>(session_, watchdog, *nccl_, lane->device,
                                                 lane->communication, launch_scale);
  } else if (choice_.name == "mpi") {
    mpi_ = std::make_unique<MpiTransport>(session_.world());
    if (lane) stand_on_mpi(*lane);
  } else {
    on_host_ = make_host_transport(session_, choice_.name);
  }
  transport_ = on_device_ ? on_device_.get() : on_host_ ? on_host_.get() : mpi_.get();
}

void RankTransport::stand_on_mpi(DeviceLane& lane) {
  if (mpi_takes_device_memory(session_, lane.device, lane.communication)) {
    choice_.why += "; MPI reads GPU memory: a trial gave the right values";
    on_device_ =
        std::make_unique<DirectTransport>(*mpi_, lane.device, lane.communication, launch_scale);
  } else {
    choice_.why += "; through page-locked memory of the host";
    on_device_ = std::make_unique<StagedTransport>(*mpi_, lane.device, lane.communication);
  }
}

RankTransport::~RankTransport() {
  session_.before_abort({});
}

RankLayout rank_layout(const Session& session) {
  // Negative: the least over the ranks as the most.
  const bool ipv4 = !among_networks(own_addresses(), tcp_networks()).empty();
  const bool room = SharedMemoryPool::fits(session.node());
  std::array<double, 3> least{-static_cast<double>(session.local_size()),
                              has_fast_network() ? -1.0 : 0.0, ipv4 ? -1.0 : 0.0};
  session.max(least);
  const auto local_ranks = session.gather(session.local_rank());
  auto nodes = static_cast<int>(std::count(local_ranks.begin(), local_ranks.end(), 0));
  session.broadcast(nodes);
  std::string no_room;
  for (const std::string& text : session.gather(room ? "" : room_text(session.host())))
    if (no_room.empty()) no_room = text;
  session.broadcast(no_room);
  return {nodes, static_cast<int>(-least[0]), least[1] < 0, least[2] < 0, no_room};
}

}  // namespace gradsync
