#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/file.h"
#include "comm/session.h"
#include "comm/shared_window.h"
#include "transport/mpi_transport.h"
#include "transport/ring.h"
#include "transport/shared_all_reduce.h"

namespace gradsync {

/// What the transports share whose all-reduce of float32 and of 16 bits is their own: everything
/// else goes by MPI.
class OwnAllReduce : public Transport {
 public:
  double run(const Collective& call) final {
    return has_own_all_reduce(call.kind, call.type) ? all_reduce(call) : mpi_.run(call);
  }

 protected:
  /// Collective over `comm`.
  OwnAllReduce(std::string_view name, MPI_Comm comm)
      : Transport(name, rank_in(comm), size_of(comm)), mpi_(comm) {}

  virtual double all_reduce(const Collective& call) = 0;
  /// What the sum is multiplied with.
  double factor(const Collective& call) const {
    return call.scale == Scale::kAverage ? 1.0 / size() : 1;
  }

 private:
  MpiTransport mpi_;
};

/// The memory of one node's ranks that SharedAllReduce works in: its header, and the buffers that
/// transports hand out. Everything is collective over `node`, which must outlive it.
class SharedMemoryPool {
 public:
  explicit SharedMemoryPool(MPI_Comm node);

  /// Rank of this process on its node.
  int rank() const { return rank_; }
  SharedAllReduce& reducer() { return reducer_; }

  /// This rank's part of a buffer of exactly `bytes`, a region of the reducer, for as long as the
  /// pointer is held; null on all ranks where the node's shared memory has no room for it. Windows
  /// are kept and taken again: giving one back would be collective, and a rank that leaves after an
  /// error does so alone.
  std::shared_ptr<std::byte> allocate(std::size_t bytes);

 private:
  MPI_Comm node_;
  int rank_;
  SharedWindow headers_;
  SharedAllReduce reducer_;
  std::vector<std::shared_ptr<SharedWindow>> buffers_;  ///< in use where shared with a caller
};

/// Transport among the ranks of one node, in memory they share (SharedAllReduce).
class ShmTransport : public OwnAllReduce {
 public:
  /// `node`: the ranks of the node as the launcher sees it (Session::node), all of them; it must
  /// outlive the transport.
  explicit ShmTransport(MPI_Comm node) : OwnAllReduce("shm", node), memory_(node) {}

  std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
    return memory_.allocate(bytes);
  }
  SharedAllReduce* posted() override { return &memory_.reducer(); }

 private:
  double all_reduce(const Collective& call) override;

  SharedMemoryPool memory_;
};

/// Transport over TCP connections of the job's own: all-reduce by RingAllReduce. Between hosts it
/// listens only where its neighbor will come from, between ranks of a node on the loopback
/// interface, and only until the ring is closed.
class RingTransport : public OwnAllReduce {
 public:
  /// Joins the ranks of `comm`, in their order, to a ring, over the networks that Open MPI is set
  /// to use (tcp_networks), or any that neighbors share. What fails on one rank is thrown on all:
  /// Error kEnvironment when two ranks cannot reach each other, kUsage for ports that are none.
  /// Collective over `comm`.
  RingTransport(const Session& session, MPI_Comm comm);

  /// Supports a narrower wire as well.
  bool supports(const Collective& call) const override {
    return call.kind != CollectiveKind::kBarrier;
  }

 private:
  double all_reduce(const Collective& call) override;

  const Session& session_;
  UniqueFd to_next_, from_previous_;
  std::optional<RingAllReduce> ring_;
};

/// Makes the transport of one lane between the nodes. Called on every rank: with MPI_COMM_NULL, and
/// for null, on those that are in no lane, so that all ranks can end together when one lane fails.
using MakeLane = std::function<std::unique_ptr<Transport>(MPI_Comm)>;

/// Transport over several nodes of several ranks: the ranks of a node sum in the memory they share,
/// each of the first L ranks of every node (L: ranks of the smallest node) exchanges its slice with
/// its like on the other nodes, in parallel lanes, and publishes the result on its node. So each
/// node's link carries 2(N−1)/N of the data for N nodes, however many ranks a node has.
class TwoLevelTransport : public OwnAllReduce {
 public:
  /// `node`: the ranks of `world` on this node, all of them. Both must outlive it. Collective.
  TwoLevelTransport(MPI_Comm world, MPI_Comm node, const MakeLane& make_lane);
  ~TwoLevelTransport() override;

  std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
    return memory_.allocate(bytes);
  }

 private:
  double all_reduce(const Collective& call) override;
  std::span<std::byte> staging(std::size_t bytes);

  MPI_Comm lane_comm_ = MPI_COMM_NULL;
  int lanes_ = 1;
  SharedMemoryPool memory_;
  std::shared_ptr<std::byte> staging_;
  std::size_t staging_bytes_ = 0;
  std::unique_ptr<Transport> lane_;  ///< none on a rank that has no lane
};

}  // namespace gradsync
