#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace gradsync {

/// The two connections of one rank of a ring; sockets that the caller keeps open.
struct RingLinks {
  int to_next = -1, from_previous = -1;
  /// "rank 1 (node02)", for messages.
  std::string next, previous;
};

/// All-reduce over a ring of stream sockets (reduce-scatter, then all-gather: 2(n−1)/n of the data
/// through each link; Patarasuk and Yuan, 2009). One stream each way: what has been added is sent
/// on at once, without a meeting between the 2(n−1) steps. The thread that calls sleeps in poll(2)
/// whenever neither socket is ready, so it takes no core from the compute that overlaps it.
///
/// Knows no MPI. T is the type of the data, W that of what travels. Each chunk is added up in one
/// order by one rank after the other, in float (double for double), and rounded to W at each hop;
/// its owner hands the rounded result to all, so all ranks hold equal bits. The error of a sum is
/// at most (n − 1)(eps(T) + [W ≠ T] eps(W))·Σ|x|, and one rounding more for `factor` and the
/// result.
class RingAllReduce {
 public:
  /// `rank` of `size` in the ring. Sockets are set to non-blocking.
  RingAllReduce(RingLinks links, int rank, int size);

  /// data = factor · Σ over ranks, in place. T/W: float with float, Bfloat16 or Float16; double,
  /// Bfloat16 and Float16 with themselves. All ranks call with the same count, factor and W.
  /// Returns the seconds spent on turning values into what travels and back. Throws Error kHang,
  /// naming the neighbor, when a connection is lost.
  template <typename T, typename W = T>
  double run(std::span<T> data, double factor);

 private:
  RingLinks links_;
  int rank_, size_;
  std::vector<std::byte> outgoing_, incoming_;  ///< a piece of what travels, each
};

}  // namespace gradsync
