#pragma once

#include <memory>
#include <vector>

#include "comm/shared_window.h"
#include "transport/mpi_transport.h"
#include "transport/shared_all_reduce.h"

namespace gradsync {

/// The memory of one node's ranks that SharedAllReduce works in: its header, and the buffers that
/// transports hand out. Everything is collective over `node`, which must outlive it.
class SharedMemoryPool {
 public:
  explicit SharedMemoryPool(MPI_Comm node);

  /// Of this process on its node.
  int rank() const { return static_cast<int>(rank_); }
  SharedAllReduce& reducer() { return reducer_; }

  /// This rank's part of a buffer of exactly `bytes`, a region of the reducer, for as long as the
  /// pointer is held; null on all ranks where the node's shared memory has no room for it. Windows
  /// are kept and taken again: giving one back would be collective, and a rank that leaves after an
  /// error does so alone.
  std::shared_ptr<std::byte> allocate(std::size_t bytes);

 private:
  MPI_Comm node_;
  std::size_t rank_;
  SharedWindow headers_;
  SharedAllReduce reducer_;
  std::vector<std::shared_ptr<SharedWindow>> buffers_;  ///< in use where shared with a caller
};

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
