#pragma once

#include <vector>

#include <mpi.h>

#include "base/numbers.h"
#include "comm/long_messages.h"
#include "transport/transport.h"

namespace gradsync {

/// Transport over MPI from host memory, on a communicator of its own.
///
/// With kSpin, all-reduce is MPI_Allreduce. With kSleep it is a ring of MPI_Isend and MPI_Irecv
/// (reduce-scatter, then all-gather: 2(n−1)/n of the data through each rank's link; Patarasuk and
/// Yuan, 2009) whose waits sleep, because MPI_Iallreduce neither progresses by itself nor uses a
/// bandwidth-optimal algorithm below four ranks in Open MPI 4.1.
class MpiTransport : public Transport {
 public:
  /// MPI counts in int: what moves more than `piece_bytes` at a time goes in pieces, or as one
  /// value of a long type.
  explicit MpiTransport(MPI_Comm parent, std::size_t piece_bytes = kPiece_bytes);
  ~MpiTransport() override;
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  std::string_view name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_reduce_sum(std::span<float> data, Waiting waiting) override;
  void all_reduce_mean(std::span<float> data, Waiting waiting) override;
  void all_reduce_sum_bf16(std::span<std::uint16_t> data, Waiting waiting) override;
  void all_reduce_sum_fp16(std::span<std::uint16_t> data, Waiting waiting) override;
  void reduce_sum(std::span<float> data, int root) override;
  void broadcast(std::span<std::byte> data, int root) override;
  void gather(std::span<const float> one, std::span<float> all, int root) override;
  void scatter(std::span<const float> all, std::span<float> one, int root) override;
  bool moves(CollectiveKind kind, ValueType type) const override;
  void move(const TypedCall& call) override;

 private:
  void all_reduce(const TypedCall& call);
  void reduce(const TypedCall& call);
  void reduce_scatter(const TypedCall& call);
  void send_receive(const TypedCall& call);
  MPI_Op sum_of(ValueType type) const;
  void ring_all_reduce(std::span<std::byte> data, ValueType type);

  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Op sum_bf16_ = MPI_OP_NULL, sum_fp16_ = MPI_OP_NULL;
  int rank_ = 0, size_ = 1;
  std::size_t piece_bytes_;
  std::vector<std::byte> scratch_;  ///< one ring chunk; grows to the largest and stays
};

/// What the transports share whose all-reduce is their own: everything with a root goes by MPI.
class MpiRootedCollectives : public Transport {
 public:
  /// Collective over `comm`.
  explicit MpiRootedCollectives(MPI_Comm comm) : rooted_(comm) {}

  int rank() const override { return rooted_.rank(); }
  int size() const override { return rooted_.size(); }

  void reduce_sum(std::span<float> data, int root) override { rooted_.reduce_sum(data, root); }
  void broadcast(std::span<std::byte> data, int root) override { rooted_.broadcast(data, root); }
  void gather(std::span<const float> one, std::span<float> all, int root) override {
    rooted_.gather(one, all, root);
  }
  void scatter(std::span<const float> all, std::span<float> one, int root) override {
    rooted_.scatter(all, one, root);
  }
  bool moves(CollectiveKind kind, ValueType type) const override {
    return rooted_.moves(kind, type);
  }
  void move(const TypedCall& call) override { rooted_.move(call); }

 private:
  MpiTransport rooted_;
};

}  // namespace gradsync
