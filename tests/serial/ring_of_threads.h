// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "transport/ring.h"

namespace gradsync::test {

/// Both ends of a connection over the loopback interface.
struct Connection {
  UniqueFd connecting, accepting;
};

/// As two ranks of a job make it.
inline Connection connection(RingEdge edge) {
  constexpr double kLimit_s = 20;
  const RingSecret secret = new_ring_secret();
  const RingListener listener(INADDR_LOOPBACK);
  Connection both;
  both.connecting = connect_to_ring(INADDR_LOOPBACK, listener.port(), "next", kLimit_s);
  std::thread accepting(
      [&] { both.accepting = listener.accept(secret, edge, "previous", kLimit_s); });
  prove_ring_connection(both.connecting, secret, edge, "next", kLimit_s);
  accepting.join();
  return both;
}

/// A pair of sockets that are no TCP: fast, for what does not depend on it.
inline Connection socket_pair(RingEdge) {
  int pair[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  return {UniqueFd(pair[0]), UniqueFd(pair[1])};
}

/// Ranks as threads, joined to a ring.
class RingOfThreads {
 public:
  explicit RingOfThreads(int ranks, Connection (*make)(RingEdge) = connection)
      : ranks_(ranks), to_next_(static_cast<std::size_t>(ranks)), from_previous_(to_next_.size()) {
    for (int rank = 0; rank < ranks; ++rank) {
      const int next = (rank + 1) % ranks;
      Connection both = make({rank, next});
      to_next_[static_cast<std::size_t>(rank)] = std::move(both.connecting);
      from_previous_[static_cast<std::size_t>(next)] = std::move(both.accepting);
    }
  }

  /// `body(reducer, rank)` on every rank; returns how often it said false.
  int run(const std::function<bool(RingAllReduce&, int)>& body) {
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks_; ++rank)
      threads.emplace_back([&, rank] {
        const auto at = static_cast<std::size_t>(rank);
        RingAllReduce reducer({to_next_[at].get(), from_previous_[at].get(), "next", "previous"},
                              rank, ranks_);
        if (!body(reducer, rank)) ++wrong;
      });
    for (std::thread& thread : threads)
      thread.join();
    return wrong;
  }

  void close(int rank) {
    to_next_[static_cast<std::size_t>(rank)].reset();
    from_previous_[static_cast<std::size_t>(rank)].reset();
  }

 private:
  int ranks_;
  std::vector<UniqueFd> to_next_, from_previous_;
};

}  // namespace gradsync::test
