// SPDX-License-Identifier: BSD-3-Clause
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "fuzz/targets.h"
#include "stats/clock.h"
#include "transport/ring.h"

namespace gradsync::fuzz {

namespace {

constexpr std::uint32_t kLoopback = 0x7F000001;
constexpr double kLimit_s = 0.02;
constexpr RingEdge kEdge{1, 0};

/// Connects, sends the input and hangs up: what anybody on the network can do.
void send_as_stranger(std::uint16_t port, Input input) {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(kLoopback);
  to.sin_port = htons(port);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) return;
  ::send(socket.get(), input.data(), input.size(), MSG_NOSIGNAL);
}

template <typename Action>
void require_refused(Action action) {
  try {
    action();
  } catch (const Error&) {
    return;
  }
  std::abort();  // a stranger was taken for a rank
}

}  // namespace

/// Both ends of a connection of the ring, each with a stranger in the place of the other.
void ring_handshake(Input input) {
  static const RingSecret secret = new_ring_secret();
  static const RingListener listener(kLoopback);
  std::thread stranger(send_as_stranger, listener.port(), input);
  require_refused([&] { listener.accept(secret, kEdge, "rank 1", kLimit_s); });
  stranger.join();

  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
  UniqueFd ours(ends[0]);
  {
    const UniqueFd theirs(ends[1]);
    ::send(theirs.get(), input.data(), std::min<std::size_t>(input.size(), 65536), MSG_NOSIGNAL);
  }
  require_refused([&] { prove_ring_connection(ours, secret, kEdge, "rank 0", kLimit_s); });
}

}  // namespace gradsync::fuzz
