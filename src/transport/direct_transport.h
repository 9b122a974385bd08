#pragma once

#include "comm/session.h"
#include "transport/staged_transport.h"

namespace gradsync {

/// Transport over an MPI that takes the memory of GPUs: each call waits until the stream has come
/// to it and hands MPI the device's memory. Sums of halves go through the host, as our own
/// operations of MPI compute there; all-reduce always spins, because the sleeping ring sums on the
/// host as well.
class DirectTransport : public StagedTransport {
 public:
  /// What scales a sum to a mean on the device: launch_scale.
  using Scale = void (*)(float* values, std::int64_t count, float factor, StreamHandle stream);

  DirectTransport(MpiTransport& mpi, Device& device, StreamHandle stream, Scale scale)
      : StagedTransport(mpi, device, stream), scale_(scale) {}

  void all_reduce_sum(std::span<float> data, Waiting waiting) override;
  void all_reduce_mean(std::span<float> data, Waiting waiting) override;
  void reduce_sum(std::span<float> data, int root) override;
  void broadcast(std::span<std::byte> data, int root) override;
  void gather(std::span<const float> one, std::span<float> all, int root) override;
  void scatter(std::span<const float> all, std::span<float> one, int root) override;

 private:
  Scale scale_;
};

/// Whether MPI says that it takes the memory of GPUs, and a message between each rank and the next,
/// and a sum over all, of a known pattern in this device's memory come out right on all ranks. An
/// MPI that does not say so is not tried: it would crash. Collective.
bool mpi_takes_device_memory(const Session& session, Device& device, StreamHandle stream);

/// The trial alone.
bool device_memory_arrives(const Session& session, Device& device, StreamHandle stream);

}  // namespace gradsync
