#pragma once

#include "base/numbers.h"
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
  StagedTransport(const StagedTransport&) = delete;
  StagedTransport& operator=(const StagedTransport&) = delete;

  std::string_view name() const override { return "mpi"; }
  int rank() const override { return mpi_.rank(); }
  int size() const override { return mpi_.size(); }

  void all_reduce_sum(std::span<float> data, Waiting waiting) override;
  void all_reduce_mean(std::span<float> data, Waiting waiting) override;
  void all_reduce_sum_bf16(std::span<std::uint16_t> data, Waiting waiting) override;
  void all_reduce_sum_fp16(std::span<std::uint16_t> data, Waiting waiting) override;
  void reduce_sum(std::span<float> data, int root) override;
  void broadcast(std::span<std::byte> data, int root) override;
  void gather(std::span<const float> one, std::span<float> all, int root) override;
  void scatter(std::span<const float> all, std::span<float> one, int root) override;
  bool moves(CollectiveKind kind, ValueType type) const override { return mpi_.moves(kind, type); }
  void move(const TypedCall& call) override;

 protected:
  /// Waits for what the stream holds.
  void settle();
  MpiTransport& mpi() { return mpi_; }
  StreamHandle stream() const { return stream_; }

 private:
  /// Host memory like `data`.
  template <typename T>
  std::span<T> host_of(PinnedBuffer& buffer, std::span<T> data);
  /// Copies to the host and waits for it.
  void fetch(void* host, const void* device, std::size_t bytes);
  void put_back(void* device, const void* host, std::size_t bytes);
  /// Runs `body` on the host's copy of `data`, and puts it back.
  template <typename T, typename Body>
  void in_place(std::span<T> data, const Body& body);

  MpiTransport& mpi_;
  Device& device_;
  StreamHandle stream_;
  EventHandle fetched_;
  PinnedBuffer one_, all_;
};

}  // namespace gradsync
