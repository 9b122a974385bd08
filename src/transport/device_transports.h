#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "comm/session.h"
#include "comm/watchdog.h"
#include "machine/device.h"
#include "transport/mpi_transport.h"

namespace gradsync {

/// Transport over MPI from the memory of a device: each call copies to page-locked host memory on
/// one stream, waits there for the copy, lets MPI move the data, and enqueues the copy back. So on
/// return the result is there in the order of that stream.
class StagedTransport : public Transport {
 public:
  /// Both must outlive it; `stream` is of that device.
  StagedTransport(MpiTransport& mpi, Device& device, StreamHandle stream);
  ~StagedTransport() override;

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

/// Transport over an MPI that takes the memory of GPUs: each call that training makes waits until
/// the stream has come to it and hands MPI the device's memory. Sums of halves, and what is only
/// calibrated, go through the host, as our own operations of MPI compute there; all-reduce always
/// spins, because the sleeping ring sums on the host as well.
class DirectTransport : public StagedTransport {
 public:
  /// What scales a sum to a mean on the device: launch_scale.
  using ScaleOnDevice = void (*)(float* values, std::int64_t count, float factor,
                                 StreamHandle stream);

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
                StreamHandle stream);
  /// Leaves together with the other ranks, or aborts when an exception is unwinding.
  ~NcclTransport() override;

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
  std::atomic<NcclCommunicator> communicator_{nullptr};
  std::mutex aborting_;  ///< while its communicator is freed its state is not asked for
};

}  // namespace gradsync
