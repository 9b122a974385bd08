#pragma once

#include <functional>
#include <memory>

#include "base/function_ref.h"
#include "transport/mpi_transport.h"
#include "transport/shm_transport.h"

namespace gradsync {

/// Makes the transport of one lane between the nodes. Called on every rank: with MPI_COMM_NULL, and
/// for null, on those that are in no lane, so that all ranks can end together when one lane fails.
using MakeLane = std::function<std::unique_ptr<Transport>(MPI_Comm)>;

/// Transport over several nodes of several ranks: the ranks of a node sum in the memory they share,
/// each of the first L ranks of every node (L: ranks of the smallest node) exchanges its slice with
/// its like on the other nodes, in parallel lanes, and publishes the result on its node. So each
/// node's link carries 2(N−1)/N of the data for N nodes, however many ranks a node has.
class TwoLevelTransport : public MpiRootedCollectives {
 public:
  /// `node`: the ranks of `world` on this node, all of them. Both must outlive it. Collective.
  TwoLevelTransport(MPI_Comm world, MPI_Comm node, const MakeLane& make_lane);
  ~TwoLevelTransport() override;
  TwoLevelTransport(const TwoLevelTransport&) = delete;
  TwoLevelTransport& operator=(const TwoLevelTransport&) = delete;

  std::string_view name() const override { return "two-level"; }

  std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
    return memory_.allocate(bytes);
  }
  void all_reduce_sum(std::span<float> data, Waiting waiting) override;
  void all_reduce_mean(std::span<float> data, Waiting waiting) override;
  void all_reduce_sum_bf16(std::span<std::uint16_t> data, Waiting waiting) override;
  void all_reduce_sum_fp16(std::span<std::uint16_t> data, Waiting waiting) override;

 private:
  template <typename T>
  void all_reduce(std::span<T> data, double factor, Waiting waiting,
                  FunctionRef<void(std::span<T>)> across);
  template <typename T>
  std::span<T> staging(std::size_t count);

  MPI_Comm lane_comm_ = MPI_COMM_NULL;
  int lanes_ = 1;
  SharedMemoryPool memory_;
  std::shared_ptr<std::byte> staging_;
  std::size_t staging_bytes_ = 0;
  std::unique_ptr<Transport> lane_;  ///< none on a rank that has no lane
};

}  // namespace gradsync
