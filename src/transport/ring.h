// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "transport/interfaces.h"
#include "transport/transport.h"

namespace gradsync {

/// A secret that only the ranks of one job have. It never travels over a ring's connections: each
/// end proves to the other that it knows it (HMAC-SHA-256 of random numbers and addresses of both
/// ends). That keeps out other users of the hosts, wrong addresses and port scans. It does not keep
/// out who reads the network: MPI sends the secret to the ranks in the clear, and the data that
/// follow are neither encrypted nor authenticated.
struct RingSecret {
  std::array<std::byte, 32> key{};

  RingSecret() = default;
  RingSecret(const RingSecret&) = default;
  RingSecret& operator=(const RingSecret&) = default;
  RingSecret(RingSecret&&) = default;
  RingSecret& operator=(RingSecret&&) = default;
  ~RingSecret();  ///< overwrites it
};

/// From the system's random source.
RingSecret new_ring_secret();

/// Which connection of the ring this is, by the ranks at its ends. It is part of the proofs: a rank
/// that reaches itself, or another rank than its neighbor, is refused.
struct RingEdge {
  int from = 0, to = 0;
};

/// A socket on which one rank waits for its neighbor.
class RingListener {
 public:
  /// On this address only, on a port of `ports`, on any if there are none. Throws Error
  /// kEnvironment.
  explicit RingListener(std::uint32_t address, PortRange ports = {});

  std::uint16_t port() const { return port_; }

  /// The connection of the rank that proves to be `edge.from`; all others are closed, with one
  /// warning on stderr. To be called before the neighbor may connect: silent strangers then take
  /// neither the places of the kernel's queue nor, for long, those among which the neighbor is
  /// looked for. A neighbor that lost its place connects again. Throws Error kEnvironment naming
  /// `previous` when it does not come in time, and after stop().
  UniqueFd accept(const RingSecret& secret, RingEdge edge, const std::string& previous,
                  double limit_s) const;
  /// Ends accept(), from any thread.
  void stop() const;

 private:
  UniqueFd socket_;
  std::uint16_t port_ = 0;
};

/// Connects to a RingListener. Throws Error kEnvironment naming `next`.
UniqueFd connect_to_ring(std::uint32_t address, std::uint16_t port, const std::string& next,
                         double limit_s);

/// At the end that connected: proves to be `edge.from`, and has the other one prove to be
/// `edge.to`. Connects again where the other end closes the connection before. Throws Error
/// kEnvironment naming `next`.
void prove_ring_connection(UniqueFd& socket, const RingSecret& secret, RingEdge edge,
                           const std::string& next, double limit_s);

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
/// order by one rank after the other, in float, and rounded to W at each hop;
/// its owner hands the rounded result to all, so all ranks hold equal bits. The error of a sum is
/// at most (n − 1)(eps(T) + [W ≠ T] eps(W))·Σ|x|, and one rounding more for `factor` and the
/// result.
class RingAllReduce {
 public:
  /// `rank` of `size` in the ring. Sockets are set to non-blocking.
  RingAllReduce(RingLinks links, int rank, int size);

  /// data = factor · Σ over ranks, in place. T/W: float with float, Bfloat16 or Float16; Bfloat16
  /// and Float16 with themselves. All ranks call with the same count, factor and W.
  /// Returns the seconds spent on turning values into what travels and back. Throws Error kHang,
  /// naming the neighbor, when a connection is lost.
  template <typename T, typename W = T>
  double run(std::span<T> data, double factor);

  /// The halves of it, of parts as long as each other, one a rank. On return this rank's part is
  /// the sum of all ranks', times `factor`, and the others are overwritten.
  void reduce_scatter(std::span<float> data, double factor = 1);
  /// On return each part is what its rank had there.
  void all_gather(std::span<float> data);

 private:
  RingLinks links_;
  int rank_, size_;
  std::vector<std::byte> outgoing_, incoming_;  ///< a piece of what travels, each
};

}  // namespace gradsync
