#pragma once

#include <atomic>
#include <mutex>

#include "base/numbers.h"
#include "comm/session.h"
#include "comm/watchdog.h"
#include "machine/device.h"
#include "transport/transport.h"

namespace gradsync {

/// Transport over NCCL from the memory of GPUs, on a communicator of its own. Calls are enqueued on
/// one stream and return at once; of one rank nothing is enqueued where the result is there
/// already. Once it is abandoned, a call waits for the end of the job.
class NcclTransport : public Transport, public DeviceQueue {
 public:
  /// `api` and `device` must outlive it; `stream` is of that device. The id travels by MPI; joining
  /// is watched, so a rank that does not come is named. Collective.
  NcclTransport(const Session& session, Watchdog& watchdog, NcclApi& api, Device& device,
                StreamHandle stream);
  /// Leaves together with the other ranks, or aborts when an exception is unwinding.
  ~NcclTransport() override;
  NcclTransport(const NcclTransport&) = delete;
  NcclTransport& operator=(const NcclTransport&) = delete;

  std::string_view name() const override { return "nccl"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  DeviceQueue* device_queue() override { return this; }

  void all_reduce_sum(std::span<float> data, Waiting waiting) override;
  void all_reduce_mean(std::span<float> data, Waiting waiting) override;
  void all_reduce_sum_bf16(std::span<std::uint16_t> data, Waiting waiting) override;
  void all_reduce_sum_fp16(std::span<std::uint16_t> data, Waiting waiting) override;
  void reduce_sum(std::span<float> data, int root) override;
  void broadcast(std::span<std::byte> data, int root) override;
  void gather(std::span<const float> one, std::span<float> all, int root) override;
  void scatter(std::span<const float> all, std::span<float> one, int root) override;

  bool moves(CollectiveKind kind, ValueType type) const override;
  /// All-to-all and send/receive are sends and receives of one group, those to itself included.
  void move(const TypedCall& call) override;

  std::string lost() override;
  void abandon() noexcept override;
  bool abandoned() const override { return communicator_ == nullptr; }

 private:
  void gather_bytes(std::span<const std::byte> one, std::span<std::byte> all, int root);
  void scatter_bytes(std::span<const std::byte> all, std::span<std::byte> one, int root);
  void all_to_all(std::span<const std::byte> send, std::span<std::byte> receive);
  void send_receive(std::span<const std::byte> send, std::span<std::byte> receive);
  void reduce(void* data, std::size_t count, ValueType type, int root);
  NcclCommunicator communicator() const;
  void all_reduce(void* data, std::size_t count, ValueType type, bool mean);

  const Session& session_;
  Watchdog& watchdog_;
  NcclApi& api_;
  Device& device_;
  StreamHandle stream_;
  int rank_, size_;
  std::atomic<NcclCommunicator> communicator_{nullptr};
  std::mutex aborting_;  ///< while its communicator is freed its state is not asked for
};

}  // namespace gradsync
