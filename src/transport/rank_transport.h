// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/file.h"
#include "comm/session.h"
#include "comm/shared_window.h"
#include "comm/watchdog.h"
#include "machine/device.h"
#include "machine/lane.h"
#include "options/transport_choice.h"
#include "transport/mpi_transport.h"
#include "transport/ring.h"
#include "transport/shared_all_reduce.h"

namespace gradsync {

/// What the transports share whose all-reduce of float32 and of 16 bits is their own: everything
/// else goes by MPI, but what they move besides (moves_half).
class OwnAllReduce : public Transport {
 public:
  double run(const Collective& call) final {
    if (has_own_all_reduce(call.kind, call.type)) return all_reduce(call);
    const std::span<float> all = floats_in_place(call, rank(), size());
    return !all.empty() && moves_half(call, all) ? 0 : mpi_.run(call);
  }

 protected:
  /// Collective over `comm`.
  OwnAllReduce(std::string_view name, MPI_Comm comm)
      : Transport(name, rank_in(comm), size_of(comm)), mpi_(comm) {}

  virtual double all_reduce(const Collective& call) = 0;
  /// Moves a half of an all-reduce as well, a reduce-scatter or an all-gather of `all` in place.
  /// False: it has not.
  virtual bool moves_half(const Collective& /*call*/, std::span<float> /*all*/) { return false; }
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
  /// Only where it fits(): else one rank throws Error kEnvironment, and has to end the job.
  explicit SharedMemoryPool(MPI_Comm node);

  /// Whether this rank sees room in the node's shared memory for the header. Not collective.
  static bool fits(MPI_Comm node);

  /// Rank of this process on its node.
  int rank() const { return rank_; }
  SharedAllReduce& reducer() { return reducer_; }

  /// This rank's part of a buffer of at least `bytes`, a region of the reducer, for as long as the
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
  bool moves_half(const Collective& call, std::span<float> all) override;

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
  bool moves_half(const Collective& call, std::span<float> all) override;
  void watching(FunctionRef<void()> body);

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
  TwoLevelTransport(const TwoLevelTransport&) = delete;
  TwoLevelTransport& operator=(const TwoLevelTransport&) = delete;

  std::shared_ptr<std::byte> allocate(std::size_t bytes) override;

 private:
  double all_reduce(const Collective& call) override;
  void reduce_here(const Collective& call);
  std::span<std::byte> staging(std::size_t bytes);

  MPI_Comm world_, lane_comm_ = MPI_COMM_NULL;
  int lanes_ = 1;
  SharedMemoryPool memory_;
  std::shared_ptr<std::byte> staging_;
  std::size_t staging_bytes_ = 0;
  bool staging_is_full_ = false;     ///< there is no room for more
  std::unique_ptr<Transport> lane_;  ///< none on a rank that has no lane
};

/// Transport over MPI from the memory of a device: each call copies to page-locked host memory on
/// one stream, waits there for the copy, lets MPI move the data, and enqueues the copy back. So on
/// return the result is there in the order of that stream.
class StagedTransport : public Transport {
 public:
  /// Both must outlive it; `stream` is of that device.
  StagedTransport(MpiTransport& mpi, Device& device, StreamHandle stream);
  ~StagedTransport() override;
  StagedTransport(const StagedTransport&) = delete;
  StagedTransport& operator=(const StagedTransport&) = delete;

  double run(const Collective& call) override;

 protected:
  /// Waits for what the stream holds.
  void settle();
  MpiTransport& mpi() { return mpi_; }
  StreamHandle stream() const { return stream_; }

 private:
  /// Host memory of so many bytes.
  std::span<std::byte> host_of(PinnedBuffer& buffer, std::size_t bytes);

  MpiTransport& mpi_;
  Device& device_;
  StreamHandle stream_;
  EventHandle fetched_;
  PinnedBuffer send_, receive_;
};

/// What scales a sum to a mean on the device: launch_scale.
using ScaleOnDevice = void (*)(float* values, std::int64_t count, float factor,
                               StreamHandle stream);

/// Transport over an MPI that takes the memory of GPUs: each call that training makes waits until
/// the stream has come to it and hands MPI the device's memory. Sums of halves, and what is only
/// calibrated, go through the host, as our own operations of MPI compute there; all-reduce always
/// spins, because the sleeping ring sums on the host as well.
class DirectTransport : public StagedTransport {
 public:
  DirectTransport(MpiTransport& mpi, Device& device, StreamHandle stream, ScaleOnDevice scale)
      : StagedTransport(mpi, device, stream), scale_(scale) {}

  double run(const Collective& call) override;

 private:
  ScaleOnDevice scale_;
};

/// True if MPI reports CUDA support and device_memory_arrives. An MPI that does not report it is
/// not tried: it would crash. Collective.
bool mpi_takes_device_memory(const Session& session, Device& device, StreamHandle stream);

/// True if a trial on this device's memory (neighbor exchange, all-reduce of a known pattern) is
/// correct on all ranks. Collective.
bool device_memory_arrives(const Session& session, Device& device, StreamHandle stream);

/// Transport over NCCL from the memory of GPUs, on a communicator of its own. Calls are enqueued on
/// one stream and return at once; of one rank nothing is enqueued where the result is there
/// already. Once it is abandoned, a call waits for the end of the job.
class NcclTransport : public Transport {
 public:
  /// `api` and `device` must outlive it; `stream` is of that device. The id travels by MPI; joining
  /// is watched, so a rank that does not come is named. Collective.
  NcclTransport(const Session& session, Watchdog& watchdog, NcclApi& api, Device& device,
                StreamHandle stream, ScaleOnDevice scale);
  /// Leaves together with the other ranks, or aborts when an exception is unwinding.
  ~NcclTransport() override;
  NcclTransport(const NcclTransport&) = delete;
  NcclTransport& operator=(const NcclTransport&) = delete;

  /// All-to-all and send/receive are sends and receives of one group, those to itself included.
  double run(const Collective& call) override;

  std::string lost() override;
  void abandon() noexcept override;

 private:
  void move(const Collective& call);
  void gather(const Collective& call);
  void scatter(const Collective& call);
  void all_to_all(const Collective& call);
  void send_receive(const Collective& call);
  NcclCommunicator communicator() const;

  const Session& session_;
  Watchdog& watchdog_;
  NcclApi& api_;
  Device& device_;
  StreamHandle stream_;
  ScaleOnDevice scale_;
  std::atomic<NcclCommunicator> communicator_{nullptr};
  std::mutex aborting_;  ///< while its communicator is freed its state is not asked for
};

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
