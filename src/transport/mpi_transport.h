// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include <mpi.h>

#include "base/numbers.h"
#include "comm/session.h"
#include "transport/transport.h"

namespace gradsync {

/// Transport over MPI from host memory, on a communicator of its own.
///
/// With kSpin, all-reduce is MPI_Allreduce. With kSleep it is a ring of MPI_Isend and MPI_Irecv
/// (reduce-scatter, then all-gather: 2(n−1)/n of the data through each rank's link; Patarasuk and
/// Yuan, 2009) whose waits sleep, because MPI_Iallreduce neither progresses by itself nor uses a
/// bandwidth-optimal algorithm below four ranks in Open MPI 4.1. The halves of it are the
/// reduce-scatters and all-gathers in place.
class MpiTransport : public Transport {
 public:
  /// MPI counts in int: what moves more than `piece_bytes` at a time goes in pieces, or as one
  /// value of a long type.
  explicit MpiTransport(MPI_Comm parent, std::size_t piece_bytes = kPiece_bytes);
  ~MpiTransport() override;
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  double run(const Collective& call) override;

 private:
  void move(const Collective& call);
  void all_reduce(const Collective& call);
  void reduce(const Collective& call);
  void reduce_scatter(const Collective& call);
  void scale(const Collective& call) const;
  void send_receive(const Collective& call);
  MPI_Op sum_of(ValueType type) const;
  enum class Halves { kAdds, kGathers, kBoth };
  /// `place` in the ring: with rank − 1, what is added last is this rank's chunk.
  void ring(std::span<std::byte> data, ValueType type, int place, Halves halves);
  bool rings(const Collective& call, std::span<const std::byte> all) const;

  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Op sum_bf16_ = MPI_OP_NULL, sum_fp16_ = MPI_OP_NULL;
  std::size_t piece_bytes_;
  std::vector<std::byte> scratch_;  ///< one ring chunk; grows to the largest and stays
};

/// Rank of this process in `comm`.
int rank_in(MPI_Comm comm);
int size_of(MPI_Comm comm);

}  // namespace gradsync
