#pragma once

#include "transport/mpi_rooted_collectives.h"
#include "transport/shared_memory_pool.h"

namespace gradsync {

/// Transport among the ranks of one node, in memory they share (SharedAllReduce).
class ShmTransport : public MpiRootedCollectives, public PostedMeans {
 public:
  /// `node`: the ranks of the node as the launcher sees it (Session::node), all of them; it must
  /// outlive the transport.
  explicit ShmTransport(MPI_Comm node) : MpiRootedCollectives(node), memory_(node) {}

  std::string_view name() const override { return "shm"; }

  std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
    return memory_.allocate(bytes);
  }
  PostedMeans* posted_means() override { return this; }
  std::uint32_t post(std::span<float> data) override;
  Progress progress() override;
  void finish(std::uint32_t number, Waiting waiting) override;
  PostedTimes times(std::uint32_t number) override;
  void all_reduce_sum(std::span<float> data, Waiting waiting) override;
  void all_reduce_mean(std::span<float> data, Waiting waiting) override;
  void all_reduce_sum_bf16(std::span<std::uint16_t> data, Waiting waiting) override;
  void all_reduce_sum_fp16(std::span<std::uint16_t> data, Waiting waiting) override;

 private:
  SharedMemoryPool memory_;
};

}  // namespace gradsync
